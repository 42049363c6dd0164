#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include "base/status.h"
#include "store/completion.h"

namespace millrace {

/// Limits how long a program is kept waiting: until `deadline`, and no longer than `interrupted` is false.
struct Patience {
  std::chrono::steady_clock::time_point deadline;
  std::function<bool()> interrupted;

  /// Waits until `done()`, which is asked under the lock. Returns DeadlineExceeded or Cancelled, naming `what`, if it
  /// does not become true in time.
  template <typename Done>
  absl::Status Wait(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, const std::string& what,
                    Done done) const {
    return WaitFor(what, [&](std::chrono::milliseconds slice) { return changed.wait_for(lock, slice, done); });
  }

  /// Returns the result of a call of a store, an absl::Status or absl::StatusOr, or the errors above if it does not
  /// come in time. The call still runs then, so its buffers must stay.
  template <typename Result>
  Result Wait(Completion<Result>& call, const std::string& what) const {
    RETURN_IF_ERROR(WaitFor(what, [&](std::chrono::milliseconds slice) { return call.WaitFor(slice); }));
    return call.Wait();
  }

 private:
  // `wait` waits for so long at most, and returns whether it is done.
  template <typename WaitSlice>
  absl::Status WaitFor(const std::string& what, WaitSlice wait) const {
    constexpr std::chrono::milliseconds kSlice{100};  // an interrupt notifies nobody
    for (auto slice = std::chrono::milliseconds(0); !wait(slice);) {
      const auto now = std::chrono::steady_clock::now();
      if (interrupted && interrupted()) return absl::CancelledError(fmt::format("{}: interrupted", what));
      if (now >= deadline) {
        return absl::DeadlineExceededError(fmt::format("{}: the store did not answer within --timeout", what));
      }
      slice = std::min(kSlice, std::chrono::ceil<std::chrono::milliseconds>(deadline - now));
    }
    return absl::OkStatus();
  }
};

}  // namespace millrace
