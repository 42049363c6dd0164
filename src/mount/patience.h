#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"

namespace millrace {

/// How long a program is kept waiting: until `deadline`, and no longer than `interrupted` is false.
struct Patience {
  std::chrono::steady_clock::time_point deadline;
  std::function<bool()> interrupted;

  /// Waits until `done()`, which is asked under the lock. DeadlineExceeded or Cancelled, naming `what`, if it does not
  /// become true in time.
  template <typename Done>
  absl::Status Wait(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, const std::string& what,
                    Done done) const {
    constexpr std::chrono::milliseconds kSlice{100};  // an interrupt notifies nobody
    while (!done()) {
      const auto now = std::chrono::steady_clock::now();
      if (interrupted && interrupted()) return absl::CancelledError(fmt::format("{}: interrupted", what));
      if (now >= deadline) {
        return absl::DeadlineExceededError(fmt::format("{}: the store did not answer within --timeout", what));
      }
      changed.wait_until(lock, std::min(deadline, now + kSlice));
    }
    return absl::OkStatus();
  }
};

/// The result of a call of a store, for somebody who may stop waiting before it comes. Shared with the callback.
template <typename T>
class Expected {
 public:
  static auto Callback(std::shared_ptr<Expected> self) {
    return [self = std::move(self)](absl::StatusOr<T> result) {
      std::lock_guard lock(self->mutex_);
      self->result_ = std::move(result);
      self->came_.notify_all();
    };
  }

  /// Call it once.
  absl::StatusOr<T> Wait(const Patience& patience, const std::string& what) {
    std::unique_lock lock(mutex_);
    RETURN_IF_ERROR(patience.Wait(lock, came_, what, [this] { return result_.has_value(); }));
    return *std::move(result_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::optional<absl::StatusOr<T>> result_;
};

}  // namespace millrace
