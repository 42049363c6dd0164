#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "s3/object.h"

namespace millrace {

/// Represents the reason for which the earliest unfinished sample of the awaited batch waits. `Walker::WaitOfFront` and
/// `StepBoard::CauseNow` decide it. `feed` prints it (cli/feed_report.cc), and diagnose/limit.cc finds the words.
enum class StallCause : uint8_t {
  kQueue,  // asked for; the client waits for a free connection
  kCredentials,
  kConnect,
  kFirstByte,
  kBody,
  kThrottling,  // backing off because the store asked for it, or after an error
  kOutage,      // the store is away
  kBudget,      // not asked for yet: the memory budget is in use
  kDecode,      // fetched; being decoded and transformed, or waiting for a CPU
  kConsumer,    // decoded work cannot start: the consumer holds all batches
  kWorker,      // a worker of the data service has not sent its rows yet
  kIndex,       // the next stage of a staged epoch has no index yet
};
inline constexpr size_t kStallCauses = 12;

std::string_view StallCauseName(StallCause cause);
StallCause CauseOf(RequestPhase phase);

/// Returns true if the consumer itself is the limit: it waited for less than 5 % of the time, or not at all. Both times
/// are in the same unit.
bool ConsumerLimits(double waited, double elapsed);

/// Represents seconds that the consumer waited, by cause, and the time between its first and last call.
struct StallReport {
  std::array<double, kStallCauses> seconds{};
  double elapsed = 0;

  double waited() const;
  /// Returns the stage that limits: the largest cause, or "consumer" if ConsumerLimits.
  std::string_view bottleneck() const;
};

/// Charges every moment between Begin and End of a wait to a cause. The causes add up to the wait. Not thread-safe.
class StallLedger {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Begins a wait of the consumer.
  void Begin(Time now);
  /// Charges the time since the last call to `cause`.
  void Charge(StallCause cause, Time now);
  /// Ends the wait: the consumer got its batch.
  void End(Time now) { last_seen_ = now; }

  StallReport report() const;

 private:
  std::array<std::chrono::nanoseconds, kStallCauses> spent_{};
  bool started_ = false;
  Time first_{};
  Time charged_until_{};
  Time last_seen_{};
};

}  // namespace millrace
