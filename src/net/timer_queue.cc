#include "net/timer_queue.h"

#include <algorithm>
#include <utility>

namespace millrace {

namespace {

constexpr size_t kFewCancelled = 64;  // not worth a clean-up

constexpr auto kLater = [](const auto& a, const auto& b) { return a.due > b.due; };

}  // namespace

TimerQueue::Slot* TimerQueue::Find(Id id) {
  const size_t index = id >> 32;
  if (index >= slots_.size() || slots_[index].generation != static_cast<uint32_t>(id)) return nullptr;
  return &slots_[index];
}

// Its slot is free for another.
absl::AnyInvocable<void()> TimerQueue::Take(Id id) {
  Slot& slot = slots_[id >> 32];
  if (++slot.generation == 0) slot.generation = 1;
  free_.push_back(static_cast<uint32_t>(id >> 32));
  return std::exchange(slot.task, nullptr);
}

TimerQueue::Id TimerQueue::Start(std::chrono::nanoseconds delay, absl::AnyInvocable<void()> task) {
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  slots_[index].task = std::move(task);
  const Id id = Id{index} << 32 | slots_[index].generation;
  const Clock::time_point due = Clock::now() + std::chrono::duration_cast<Clock::duration>(delay);
  waiting_.push_back({due, id});
  std::push_heap(waiting_.begin(), waiting_.end(), kLater);
  if (due < armed_) Arm(due);
  return id;
}

void TimerQueue::Cancel(Id id) {
  if (Find(id) == nullptr) return;
  const absl::AnyInvocable<void()> task = Take(id);  // destroyed when all is in order: it may own much
  if (++cancelled_ > kFewCancelled && cancelled_ > waiting_.size() / 2) DropCancelled();
}

void TimerQueue::DropCancelled() {
  std::erase_if(waiting_, [this](const Waiting& waiting) { return Find(waiting.id) == nullptr; });
  std::make_heap(waiting_.begin(), waiting_.end(), kLater);
  cancelled_ = 0;
}

void TimerQueue::Arm(Clock::time_point due) {
  armed_ = due;
  timer_.Start(due - Clock::now(), [this] { RunDue(); });
}

void TimerQueue::RunDue() {
  armed_ = Clock::time_point::max();
  while (!waiting_.empty()) {
    const auto [due, id] = waiting_.front();
    const bool cancelled = Find(id) == nullptr;
    if (!cancelled && due > Clock::now()) {
      if (due < armed_) Arm(due);
      return;
    }
    std::pop_heap(waiting_.begin(), waiting_.end(), kLater);
    waiting_.pop_back();
    cancelled ? static_cast<void>(--cancelled_) : Take(id)();
  }
}

}  // namespace millrace
