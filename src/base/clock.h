#pragma once

#include <mutex>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace millrace {

/// The wall clock, injected where tests must move it. Thread-safe. Durations of waits are measured with
/// std::chrono::steady_clock instead.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() = 0;
};

class SystemClock final : public Clock {
 public:
  absl::Time Now() override { return absl::Now(); }
};

/// A clock that stands until a test moves it.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(absl::Time now) : now_(now) {}
  absl::Time Now() override {
    std::lock_guard lock(mutex_);
    return now_;
  }
  void Advance(absl::Duration by) {
    std::lock_guard lock(mutex_);
    now_ += by;
  }

 private:
  std::mutex mutex_;
  absl::Time now_;
};

}  // namespace millrace
