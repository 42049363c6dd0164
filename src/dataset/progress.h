#pragma once

#include <chrono>
#include <cstdint>

#include "dataset/dataset.h"

namespace millrace {

/// Passes progress on, at most ten times a second. Not thread-safe.
class ProgressMeter {
 public:
  /// `report` may be empty and must outlive the meter.
  explicit ProgressMeter(const ProgressFn& report) : report_(report) {}

  void Update(uint64_t done, uint64_t total) {
    if (!report_) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - reported_ < std::chrono::milliseconds(100)) return;
    reported_ = now;
    report_(done, total);
  }

 private:
  const ProgressFn& report_;
  std::chrono::steady_clock::time_point reported_{};
};

}  // namespace millrace
