#include "pipeline/batch_ring.h"

#include <utility>

#include "base/buffer.h"

namespace millrace {

namespace {

constexpr size_t kPage = 4096;

}  // namespace

struct BatchRing::State {
  /// Represents the memory of a slot, in whole pages.
  struct SlotMemory {
    Buffer block;
    MutableByteSpan bytes;  // of the block

    SlotMemory() = default;
    explicit SlotMemory(uint64_t size) : SlotMemory(Buffer(RoundedUp(size) + kPage), RoundedUp(size)) {}

   private:
    SlotMemory(Buffer memory, uint64_t size) : block(std::move(memory)) {
      const auto address = reinterpret_cast<uintptr_t>(block.data());
      bytes = block.span().subspan(RoundedUp(address) - address, size);
    }
    static uint64_t RoundedUp(uint64_t number) { return (number + kPage - 1) / kPage * kPage; }
  };

  State(uint64_t bytes, uint64_t slots, Reservation reserved, std::function<void()> callback)
      : slot_bytes(bytes), max_slots(slots), budget(std::move(reserved)), returned(std::move(callback)) {}

  const uint64_t slot_bytes;
  const uint64_t max_slots;
  const Reservation budget;

  std::mutex mutex;
  std::condition_variable idle;
  std::vector<SlotMemory> free;
  uint64_t out = 0;
  bool ring_alive = true;
  int notifying = 0;  // calls of `returned` in flight
  const std::function<void()> returned;

  void Return(SlotMemory slot) {
    {
      std::lock_guard lock(mutex);
      --out;
      if (!ring_alive) return;  // the slot dies with this call
      free.push_back(std::move(slot));
      ++notifying;
    }
    returned();
    std::lock_guard lock(mutex);
    if (--notifying == 0) idle.notify_all();
  }
};

BatchRing::BatchRing(uint64_t slot_bytes, uint64_t max_slots, Reservation budget, std::function<void()> returned)
    : state_(std::make_shared<State>(slot_bytes, max_slots, std::move(budget), std::move(returned))) {}

BatchRing::~BatchRing() {
  std::unique_lock lock(state_->mutex);
  state_->ring_alive = false;
  state_->free.clear();
  state_->idle.wait(lock, [this] { return state_->notifying == 0; });
}

uint64_t BatchRing::made() const {
  const std::lock_guard lock(state_->mutex);
  return state_->out + state_->free.size();
}

std::shared_ptr<MutableByteSpan> BatchRing::TryAcquire() {
  State::SlotMemory slot;
  {
    std::lock_guard lock(state_->mutex);
    if (state_->out == state_->max_slots) return nullptr;
    ++state_->out;
    if (!state_->free.empty()) {
      slot = std::move(state_->free.back());
      state_->free.pop_back();
    }
  }
  if (slot.bytes.empty()) slot = State::SlotMemory(state_->slot_bytes);
  const std::shared_ptr<State::SlotMemory> owner(new State::SlotMemory(std::move(slot)),
                                                 [state = state_](State::SlotMemory* returned) {
                                                   state->Return(std::move(*returned));
                                                   delete returned;
                                                 });
  return {owner, &owner->bytes};
}

}  // namespace millrace
