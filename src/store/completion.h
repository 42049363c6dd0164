#pragma once

#include <chrono>
#include <future>
#include <stop_token>
#include <utility>

namespace millrace {

/// Waits for the callback of one asynchronous call. The callback may outlive this object.
template <typename Result>
class Completion {
 public:
  /// To be passed to the call; runs once.
  auto Callback() {
    return [promise = std::move(promise_)](Result result) mutable { promise.set_value(std::move(result)); };
  }

  /// Whether the callback has run, or does so within `limit`.
  bool WaitFor(std::chrono::milliseconds limit) { return future_.wait_for(limit) == std::future_status::ready; }

  /// Blocks until the callback has run, or until soon after a stop is requested: false then.
  bool WaitOrStop(const std::stop_token& stop) {
    constexpr std::chrono::milliseconds kSlice{50};
    while (!WaitFor(kSlice)) {
      if (stop.stop_requested()) return false;
    }
    return true;
  }

  /// Blocks until the callback has run. Call it once, after Callback().
  Result Wait() { return future_.get(); }

 private:
  std::promise<Result> promise_;
  std::future<Result> future_ = promise_.get_future();
};

}  // namespace millrace
