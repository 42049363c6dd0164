#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>

#include "absl/time/time.h"

/// Decides when to try again. No clock and no randomness of its own: both are given.

namespace millrace {

inline constexpr absl::Duration kMaxRetryAfter = absl::Seconds(60);

/// Returns the wait that a Retry-After header asks for (seconds or an HTTP date), at most kMaxRetryAfter; nullopt when
/// it cannot be read.
std::optional<absl::Duration> ParseRetryAfter(std::string_view value, absl::Time now);

/// Paces the retries of a client. Tokens come with time and with successes, so that a storm of failures is neither
/// amplified nor ever locked out. A request that finds no token gets the time to wait. Thread-safe.
class RetryBudget {
 public:
  static constexpr double kCapacity = 500;
  static constexpr double kPerSecond = 50;
  static constexpr double kPerSuccess = 0.5;

  /// Takes a token and returns how long to wait until it is there; zero when it is.
  absl::Duration Spend(absl::Time now);
  void OnSuccess();

 private:
  std::atomic<bool> full_{true};
  std::mutex mutex_;
  double tokens_ = kCapacity;  // below zero: tokens that were promised
  std::optional<absl::Time> updated_;
};

}  // namespace millrace
