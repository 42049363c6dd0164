#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace millrace {

/// Bounds memory that tasks need for a short time, and wait for. The task that comes first is served first. A task that
/// has some of it waits for no other task, and takes no more, so that every task is served. Thread-safe; outlives what
/// was taken.
class WaitingBudget {
 public:
  explicit WaitingBudget(uint64_t limit_bytes) : limit_(limit_bytes) {}

  /// Waits until `bytes` are free. More than the limit are given to a task while no other has any.
  void Take(uint64_t bytes);
  void Return(uint64_t bytes);

  uint64_t limit() const { return limit_; }

 private:
  const uint64_t limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t used_ = 0;
  uint64_t next_ticket_ = 0;
  uint64_t served_ticket_ = 0;  // the task that has it is served next
};

}  // namespace millrace
