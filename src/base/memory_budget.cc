#include "base/memory_budget.h"

namespace millrace {

bool MemoryBudget::TryTake(uint64_t bytes) {
  uint64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ || used > limit_ - bytes) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return true;
}

Reservation MemoryBudget::TryReserve(uint64_t bytes) {
  return TryTake(bytes) ? Reservation(this, bytes) : Reservation();
}

bool MemoryBudget::TryExtend(Reservation* reservation, uint64_t bytes) {
  if (!TryTake(bytes)) return false;
  reservation->budget_ = this;
  reservation->bytes_ += bytes;
  return true;
}

Reservation::~Reservation() {
  if (budget_ != nullptr) budget_->used_.fetch_sub(bytes_, std::memory_order_relaxed);
}

}  // namespace millrace
