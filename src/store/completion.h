#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>

namespace millrace {

/// Waits for the callback of one asynchronous call (those of many: store/calls_in_flight.h). The callback may outlive
/// this object.
///
///   Completion<absl::StatusOr<ObjectInfo>> head;
///   store.Head(key, {}, head.Callback());
///   const absl::StatusOr<ObjectInfo> info = head.Wait();
template <typename Result>
class Completion {
 public:
  /// Returns the callback to pass to the call. It runs once.
  auto Callback() {
    return [state = state_](Result result) {
      std::lock_guard lock(state->mutex);
      state->result.emplace(std::move(result));
      state->came.notify_all();
    };
  }

  /// Returns true if the callback has run, or does so within `limit`.
  bool WaitFor(std::chrono::milliseconds limit) {
    std::unique_lock lock(state_->mutex);
    return state_->came.wait_for(lock, limit, [this] { return state_->result.has_value(); });
  }

  /// Blocks until the callback has run, or until a stop is requested. Returns false in the second case.
  bool WaitOrStop(const std::stop_token& stop) {
    std::unique_lock lock(state_->mutex);
    return state_->came.wait(lock, stop, [this] { return state_->result.has_value(); });
  }

  /// Blocks until the callback has run. Call it once, after Callback().
  Result Wait() {
    std::unique_lock lock(state_->mutex);
    state_->came.wait(lock, [this] { return state_->result.has_value(); });
    return *std::move(state_->result);
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable_any came;
    std::optional<Result> result;
  };

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace millrace
