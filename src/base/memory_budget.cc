#include "base/memory_budget.h"

namespace millrace {

Reservation MemoryBudget::TryReserve(uint64_t bytes) {
  uint64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ || used > limit_ - bytes) return {};
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return {this, bytes};
}

Reservation::~Reservation() {
  if (budget_ != nullptr) budget_->used_.fetch_sub(bytes_, std::memory_order_relaxed);
}

}  // namespace millrace
