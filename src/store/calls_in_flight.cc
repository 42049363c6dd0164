#include "store/calls_in_flight.h"

namespace millrace {

CallsInFlight::~CallsInFlight() {
  stop_.request_stop();
  std::unique_lock lock(mutex_);
  came_.wait(lock, [this] { return answered_ == count_; });
}

void CallsInFlight::Post(std::unique_ptr<Call> call) {
  std::lock_guard lock(mutex_);
  ++answered_;
  *last_ = std::move(call);
  last_ = &(*last_)->next;
  came_.notify_all();  // under the lock: the owner may be gone right after
}

absl::Status CallsInFlight::Fail(absl::Status status) {
  status_.Update(std::move(status));
  stop_.request_stop();
  return status_;
}

// Returns false if no answer has come.
bool CallsInFlight::HandleNext(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) came_.wait(lock, [this] { return answered_ > 0; });
  if (answered_ == 0) return false;
  const std::unique_ptr<Call> call = std::move(first_);
  first_ = std::move(call->next);
  if (--answered_ == 0) last_ = &first_;
  lock.unlock();
  --count_;
  if (absl::Status status = call->Handle(); !status.ok()) (void)Fail(std::move(status));
  return true;
}

absl::Status CallsInFlight::WaitForRoom(size_t most) {
  while (status_.ok() && HandleNext(count_ >= most)) continue;
  return status_;
}

absl::Status CallsInFlight::WaitForAll() {
  while (HandleNext(count_ > 0)) continue;
  return status_;
}

}  // namespace millrace
