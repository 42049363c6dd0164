#include "cli/staged_advice.h"

#include <fmt/format.h>

namespace millrace::cli {

std::optional<std::string> StagedAdvice::Update(uint64_t done, uint64_t total, double seconds) {
  constexpr uint64_t kLeastBytes = uint64_t{1} << 30;
  constexpr double kLeastSeconds = 60;
  if (considered_ || total < kLeastBytes || done == 0 || done < total / 100) return std::nullopt;
  considered_ = true;
  const double left = seconds * static_cast<double>(total - done) / static_cast<double>(done);
  if (left < kLeastSeconds) return std::nullopt;
  return fmt::format(
      "indexing takes about {:.0f} min more; --start staged begins after 256 MiB, and indexes the rest meanwhile",
      left / 60);
}

}  // namespace millrace::cli
