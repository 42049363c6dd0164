#include "net/timer_queue.h"

#include <utility>

namespace millrace {

TimerQueue::Id TimerQueue::Start(std::chrono::nanoseconds delay, absl::AnyInvocable<void()> task) {
  waiting_.push_back({Clock::now() + std::chrono::duration_cast<Clock::duration>(delay), std::move(task)});
  if (!std::exchange(armed_, true)) timer_.Start(delay, [this] { RunDue(); });
  return front_ + waiting_.size() - 1;
}

void TimerQueue::Cancel(Id id) {
  if (id < front_) return;
  waiting_[id - front_].task = nullptr;
  for (; !waiting_.empty() && !waiting_.front().task; ++front_) waiting_.pop_front();
}

void TimerQueue::RunDue() {
  armed_ = false;
  while (!waiting_.empty()) {
    Waiting& next = waiting_.front();
    const Clock::time_point now = Clock::now();
    if (next.task && next.due > now) {
      // The task before may have armed it.
      if (!std::exchange(armed_, true)) timer_.Start(next.due - now, [this] { RunDue(); });
      return;
    }
    absl::AnyInvocable<void()> task = std::move(next.task);
    waiting_.pop_front();
    ++front_;
    if (task) task();
  }
}

}  // namespace millrace
