#include "pipeline/stall_ledger.h"

#include <algorithm>
#include <numeric>

namespace millrace {

std::string_view StallCauseName(StallCause cause) {
  constexpr std::array<std::string_view, kStallCauses> kNames{"queue",  "credentials", "connect", "first_byte",
                                                              "body",   "throttling",  "outage",  "budget",
                                                              "decode", "consumer",    "worker",  "index"};
  return kNames[static_cast<size_t>(cause)];
}

StallCause CauseOf(RequestPhase phase) {
  switch (phase) {
    case RequestPhase::kQueued:
      return StallCause::kQueue;
    case RequestPhase::kCredentials:
      return StallCause::kCredentials;
    case RequestPhase::kConnect:
      return StallCause::kConnect;
    case RequestPhase::kFirstByte:
      return StallCause::kFirstByte;
    case RequestPhase::kBody:
      return StallCause::kBody;
    case RequestPhase::kThrottled:
      return StallCause::kThrottling;
    case RequestPhase::kOutage:
      return StallCause::kOutage;
    case RequestPhase::kDone:
      return StallCause::kDecode;
  }
  return StallCause::kQueue;
}

bool ConsumerLimits(double waited, double elapsed) {
  return waited < 0.05 * elapsed || waited == 0;
}

double StallReport::waited() const {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

std::string_view StallReport::bottleneck() const {
  if (ConsumerLimits(waited(), elapsed)) return StallCauseName(StallCause::kConsumer);
  const auto largest = std::max_element(seconds.begin(), seconds.end());
  return StallCauseName(static_cast<StallCause>(largest - seconds.begin()));
}

void StallLedger::Begin(Time now) {
  if (!started_) {
    started_ = true;
    first_ = now;
  }
  charged_until_ = now;
  last_seen_ = now;
}

void StallLedger::Charge(StallCause cause, Time now) {
  spent_[static_cast<size_t>(cause)] += now - charged_until_;
  charged_until_ = now;
  last_seen_ = now;
}

StallReport StallLedger::report() const {
  StallReport report;
  for (size_t i = 0; i < kStallCauses; ++i) report.seconds[i] = std::chrono::duration<double>(spent_[i]).count();
  report.elapsed = std::chrono::duration<double>(last_seen_ - first_).count();
  return report;
}

}  // namespace millrace
