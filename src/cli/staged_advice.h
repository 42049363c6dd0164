#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace millrace::cli {

/// Advice for who waits for a long build of an index: a staged run does not. It is given once, when a hundredth of the
/// build shows how long the rest takes.
class StagedAdvice {
 public:
  /// Returns the advice, if it is due after so many bytes and seconds.
  std::optional<std::string> Update(uint64_t done, uint64_t total, double seconds);

 private:
  bool considered_ = false;
};

}  // namespace millrace::cli
