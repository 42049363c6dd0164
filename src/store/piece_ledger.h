#pragma once

#include <mutex>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millrace {

/// Which pieces of an object have been written. Thread-safe.
class PieceLedger {
 public:
  explicit PieceLedger(size_t pieces) : written_(pieces, false) {}

  void Enter(size_t index) {
    std::lock_guard lock(mutex_);
    written_[index] = true;
  }

  /// FailedPrecondition when one is missing.
  absl::Status CheckAll(std::string_view uri) const;

 private:
  mutable std::mutex mutex_;
  std::vector<bool> written_;
};

}  // namespace millrace
