#include "net/timer_queue.h"

#include <algorithm>
#include <exception>
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
    slots_.emplace_back();
    free_.reserve(slots_.capacity());  // so that Take needs no memory
    free_.push_back(static_cast<uint32_t>(slots_.size() - 1));
  }
  const uint32_t index = free_.back();
  const Id id = Id{index} << 32 | slots_[index].generation;
  const Clock::time_point due = Clock::now() + std::chrono::duration_cast<Clock::duration>(delay);
  waiting_.push_back({due, id});
  std::push_heap(waiting_.begin(), waiting_.end(), kLater);
  free_.pop_back();
  slots_[index].task = std::move(task);
  try {
    if (due < armed_) Arm(due);
  } catch (const std::exception&) {
    Cancel(id);  // the caller knows of none
    throw;
  }
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
  timer_.Start(due - Clock::now(), [this] { RunDue(); });
  armed_ = due;
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
