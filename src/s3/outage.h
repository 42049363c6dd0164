#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "absl/time/time.h"

namespace millrace {

/// Decides whether a store that has served requests is away, and what requests do until it is back. They wait, and one
/// of them a second goes out to see. It has no clock of its own. Thread-safe.
///
/// The store counts as away when, for kQuiet, requests have failed as they do without a server, and none has succeeded.
/// Stores that never served a request are not waited for: their address is more likely wrong.
class Outage {
 public:
  static constexpr absl::Duration kQuiet = absl::Seconds(3);
  static constexpr absl::Duration kProbeEvery = absl::Seconds(1);
  /// A request that waits looks this often whether the store is back.
  static constexpr absl::Duration kPoll = absl::Milliseconds(200);

  /// Sets how long an outage is waited for from its beginning. If it is zero, requests do not wait, and no store counts
  /// as away.
  void SetLimit(absl::Duration limit) { limit_ns_.store(absl::ToInt64Nanoseconds(limit), std::memory_order_relaxed); }

  /// Returns whether failures may become an outage.
  bool watches() const { return limit() > absl::ZeroDuration() && served_.load(std::memory_order_relaxed); }

  struct Verdict {
    enum class Kind {
      kNone,   // no outage: the request goes on as if there were no such thing
      kWait,   // after kPoll it takes a turn again
      kBegun,  // the same; this failure showed that the store is away
      kOver,   // it has been away for longer than the limit
    };
    Kind kind = Kind::kNone;
    absl::Time since;  // of an outage
    absl::Time until;  // when the limit is reached
  };
  /// A request failed in a way in which requests fail without a server.
  Verdict OnFailure(absl::Time now);
  /// The store served a request. Returns the beginning of the outage that this ends; nullopt if there was none.
  std::optional<absl::Time> OnSuccess();

  /// Zero: the request may go out now. Else it waits so long, and asks again.
  absl::Duration TakeTurn(absl::Time now);

 private:
  absl::Duration limit() const { return absl::Nanoseconds(limit_ns_.load(std::memory_order_relaxed)); }

  std::atomic<int64_t> limit_ns_{0};
  std::atomic<bool> served_{false};
  std::atomic<bool> failing_{false};  // `since_` is set
  std::atomic<bool> away_{false};
  std::mutex mutex_;
  std::optional<absl::Time> since_;  // the first of the failures since the last success
  absl::Time next_probe_;
};

}  // namespace millrace
