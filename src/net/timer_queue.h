#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

#include "absl/functional/any_invocable.h"
#include "net/event_loop.h"

namespace millrace {

/// Timers of one delay, or of delays that change slowly, most of which are cancelled before they are due: a watch on
/// each of many requests. Starting and cancelling one costs no system call and no allocation. A task runs on the loop
/// when it is due, but not before those that were started earlier and are still waiting. Used on the loop's thread
/// only; the destructor, too, which cancels.
class TimerQueue {
 public:
  using Id = uint64_t;  // never 0

  explicit TimerQueue(EventLoop& loop) : timer_(loop) {}

  Id Start(std::chrono::nanoseconds delay, absl::AnyInvocable<void()> task);
  /// Nothing happens when it has run, or was cancelled before.
  void Cancel(Id id);

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    Clock::time_point due;
    absl::AnyInvocable<void()> task;  // null: cancelled
  };

  void RunDue();

  Timer timer_;
  bool armed_ = false;  // the timer, for one that may be cancelled by now
  std::deque<Waiting> waiting_;
  Id front_ = 1;  // of the first that waits
};

}  // namespace millrace
