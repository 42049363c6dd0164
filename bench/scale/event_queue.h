#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"

namespace millrace {

/// Represents simulated time: the future events, in order. If two events have the same moment, the one that was added
/// first comes first, so that a run depends only on its input. The class is not thread-safe.
class EventQueue {
 public:
  using Nanos = int64_t;

  static Nanos OfSeconds(double seconds) { return static_cast<Nanos>(seconds * 1e9); }
  static double ToSeconds(Nanos nanos) { return static_cast<double>(nanos) * 1e-9; }

  Nanos now() const { return now_; }
  double seconds() const { return ToSeconds(now_); }
  /// Returns the same moment, for modules that take the time in these types.
  absl::Time absl_now() const { return absl::UnixEpoch() + absl::Nanoseconds(now_); }
  std::chrono::steady_clock::time_point steady_now() const {
    return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(now_));
  }

  /// A moment that has passed counts as now.
  void At(Nanos when, absl::AnyInvocable<void()> call) {
    events_.push_back({std::max(when, now_), added_++, std::move(call)});
    std::push_heap(events_.begin(), events_.end(), Later);
  }
  void After(Nanos delay, absl::AnyInvocable<void()> call) { At(now_ + delay, std::move(call)); }
  void After(absl::Duration delay, absl::AnyInvocable<void()> call) {
    After(absl::ToInt64Nanoseconds(delay), std::move(call));
  }

  /// Returns the next event. False if there is none.
  bool RunOne() {
    if (events_.empty()) return false;
    std::pop_heap(events_.begin(), events_.end(), Later);
    Event event = std::move(events_.back());
    events_.pop_back();
    now_ = event.when;
    event.call();
    return true;
  }

 private:
  struct Event {
    Nanos when;
    uint64_t number;
    absl::AnyInvocable<void()> call;
  };
  static bool Later(const Event& a, const Event& b) { return a.when != b.when ? a.when > b.when : a.number > b.number; }

  std::vector<Event> events_;  // a heap
  Nanos now_ = 0;
  uint64_t added_ = 0;
};

}  // namespace millrace
