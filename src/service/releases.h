#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <utility>

namespace millrace {

/// Notifies the sessions of a worker that memory has become free: a batch was sent, or a loader has gone. A session
/// that found too little memory waits for that. Thread-safe.
class Releases {
 public:
  /// The count is read before a session looks for memory, so that it misses no release meanwhile.
  uint64_t count() const {
    const std::lock_guard lock(mutex_);
    return count_;
  }
  void Tell() {
    {
      const std::lock_guard lock(mutex_);
      ++count_;
    }
    told_.notify_all();
  }
  /// Returns after the first release since the count was `seen`, or after `limit`, or when a stop is requested.
  void Await(uint64_t seen, std::chrono::nanoseconds limit, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    told_.wait_for(lock, stop, limit, [&] { return count_ != seen; });
  }

  /// Wraps `memory`. When the last pointer to the result has gone, and the memory with it, `releases` is notified.
  static std::shared_ptr<void> Watch(std::shared_ptr<Releases> releases, std::shared_ptr<void> memory) {
    struct Watched {
      std::shared_ptr<Releases> releases;
      std::shared_ptr<void> memory;
      ~Watched() {
        memory.reset();
        releases->Tell();
      }
    };
    auto watched = std::make_shared<Watched>();
    watched->releases = std::move(releases);
    watched->memory = std::move(memory);
    return watched;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable_any told_;
  uint64_t count_ = 0;
};

}  // namespace millrace
