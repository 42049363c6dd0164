#include "pipeline/batch_ring.h"

#include <utility>

namespace millrace {

struct BatchRing::State {
  State(uint64_t bytes, uint64_t slots, Reservation reserved, std::function<void()> callback)
      : slot_bytes(bytes), max_slots(slots), budget(std::move(reserved)), returned(std::move(callback)) {}

  const uint64_t slot_bytes;
  const uint64_t max_slots;
  const Reservation budget;

  std::mutex mutex;
  std::condition_variable idle;
  std::vector<Buffer> free;
  uint64_t out = 0;
  bool ring_alive = true;
  int notifying = 0;  // calls of `returned` in flight
  const std::function<void()> returned;

  void Return(Buffer buffer) {
    {
      std::lock_guard lock(mutex);
      --out;
      if (!ring_alive) return;  // the buffer dies with this call
      free.push_back(std::move(buffer));
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

std::shared_ptr<Buffer> BatchRing::TryAcquire() {
  Buffer buffer;
  {
    std::lock_guard lock(state_->mutex);
    if (state_->out == state_->max_slots) return nullptr;
    ++state_->out;
    if (!state_->free.empty()) {
      buffer = std::move(state_->free.back());
      state_->free.pop_back();
    }
  }
  if (buffer.size() == 0) buffer = Buffer(state_->slot_bytes);
  return {new Buffer(std::move(buffer)), [state = state_](Buffer* slot) {
            state->Return(std::move(*slot));
            delete slot;
          }};
}

}  // namespace millrace
