#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "net/event_loop.h"

namespace millrace {

/// Many timers, most of which are cancelled before they are due: a watch on each of many requests. Starting and
/// cancelling one costs a fraction of a microsecond, and hardly ever a system call or an allocation. Used on the loop's
/// thread only. The destructor cancels; a task must not destroy the queue that runs it.
class TimerQueue {
 public:
  using Id = uint64_t;  // never 0

  explicit TimerQueue(EventLoop& loop) : timer_(loop) {}

  /// Runs `task` on the loop after `delay`, unless cancelled before.
  Id Start(std::chrono::nanoseconds delay, absl::AnyInvocable<void()> task);
  /// Nothing happens when it has run, or was cancelled before, or is 0.
  void Cancel(Id id);

 private:
  using Clock = std::chrono::steady_clock;
  struct Slot {
    absl::AnyInvocable<void()> task;
    uint32_t generation = 1;  // of its use: an Id of an earlier one is out of date
  };
  struct Waiting {
    Clock::time_point due;
    Id id;
  };

  Slot* Find(Id id);
  absl::AnyInvocable<void()> Take(Id id);
  void Arm(Clock::time_point due);
  void DropCancelled();
  void RunDue();

  Timer timer_;
  Clock::time_point armed_ = Clock::time_point::max();  // when timer_ is due
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;    // of slots_
  std::vector<Waiting> waiting_;  // a heap, the earliest on top; also those that were cancelled lately
  size_t cancelled_ = 0;          // of waiting_
};

}  // namespace millrace
