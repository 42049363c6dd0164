#pragma once

#include <chrono>
#include <cstdint>

#include "base/long_task.h"

namespace millrace {

/// Passes progress on, at most ten times a second, and the last when it ends. Not thread-safe.
class ProgressMeter {
 public:
  /// `report` may be empty and must outlive the meter.
  explicit ProgressMeter(const ProgressFn& report) : report_(report) {}

  ~ProgressMeter() {
    if (held_back_) report_(done_, total_);
  }
  ProgressMeter(const ProgressMeter&) = delete;
  ProgressMeter& operator=(const ProgressMeter&) = delete;

  void Update(uint64_t done, uint64_t total) {
    if (!report_) return;
    const auto now = std::chrono::steady_clock::now();
    done_ = done;
    total_ = total;
    held_back_ = now - reported_ < std::chrono::milliseconds(100);
    if (held_back_) return;
    reported_ = now;
    report_(done, total);
  }

 private:
  const ProgressFn& report_;
  std::chrono::steady_clock::time_point reported_{};
  bool held_back_ = false;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
};

}  // namespace millrace
