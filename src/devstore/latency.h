#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "devstore/faults.h"

namespace millrace {

/// Models when the server sends the first byte of an answer: log-normal, and for a fraction of requests a fixed, longer
/// time.
struct LatencyModel {
  double first_byte_ms = 0;       // median; 0: no delay
  double first_byte_sigma = 0.3;  // of the logarithm
  double tail_ms = 0;
  double tail_fraction = 0;

  bool enabled() const { return first_byte_ms > 0 || tail_fraction > 0; }
};

/// This is a pure function: a run with the same seed and the same requests has the same delays.
std::chrono::nanoseconds FirstByteDelay(const LatencyModel& model, uint64_t seed, const RequestIdentity& request);

/// Returns when to send the answer to a request that arrived at `arrived` and is delayed by `delay`. It is sent
/// together with other answers that are due at about the same time: up to a sixteenth of the delay, and at most 2 ms,
/// later. If the server woke up for each answer by itself, it would take CPU time from a client on the same machine,
/// which a store far away does not.
std::chrono::steady_clock::time_point LeavesAt(std::chrono::steady_clock::time_point arrived,
                                               std::chrono::nanoseconds delay);

/// Counts how often each request was seen. Thread-safe. Forgets everything after 2^21 different requests.
class AttemptCounter {
 public:
  /// Returns 0 at the first call with this method, key and range.
  uint64_t Next(const RequestIdentity& request);

 private:
  std::mutex mutex_;
  std::unordered_map<uint64_t, uint32_t> seen_;
};

/// Requests a second for each prefix: the bucket and the key up to its last '/'. Thread-safe; remembers 65,536 busy
/// prefixes.
class PrefixRates {
 public:
  explicit PrefixRates(uint64_t per_second) : per_second_(static_cast<double>(per_second)) {}  // 0: unlimited

  /// Returns false if there are too many requests. `key` is "bucket/key".
  bool Take(std::string_view key, std::chrono::steady_clock::time_point now);

 private:
  const double per_second_;
  std::mutex mutex_;
  std::unordered_map<std::string, TokenBucket> buckets_;
};

}  // namespace millrace
