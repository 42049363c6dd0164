#include "base/waiting_budget.h"

namespace millrace {

void WaitingBudget::Take(uint64_t bytes) {
  std::unique_lock lock(mutex_);
  const uint64_t ticket = next_ticket_++;
  changed_.wait(
      lock, [&] { return served_ticket_ == ticket && (used_ == 0 || (used_ < limit_ && bytes <= limit_ - used_)); });
  used_ += bytes;
  ++served_ticket_;
  changed_.notify_all();
}

void WaitingBudget::Return(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
  changed_.notify_all();
}

}  // namespace millrace
