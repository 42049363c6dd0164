#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace millrace {

/// Counts what has begun and not ended, so that a destructor can wait for it. Begin and End take no lock, but for the
/// End that a waiting thread waits for. That thread may free this right after it. Thread-safe.
class InFlight {
 public:
  void Begin() { state_.fetch_add(1, std::memory_order_relaxed); }
  void End() {
    if (state_.fetch_sub(1, std::memory_order_acq_rel) != (kWaiting | 1)) return;
    const std::lock_guard lock(mutex_);
    over_ = true;
    ended_.notify_all();
  }
  /// Returns when all has ended. Call it once. More may begin meanwhile, as long as something else has not ended.
  void Wait() {
    if (state_.fetch_or(kWaiting, std::memory_order_acq_rel) == 0) return;
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return over_; });
  }

 private:
  static constexpr uint64_t kWaiting = uint64_t{1} << 63;

  std::atomic<uint64_t> state_{0};  // how many, and kWaiting
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
};

}  // namespace millrace
