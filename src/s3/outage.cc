#include "s3/outage.h"

#include <utility>

namespace millrace {

Outage::Verdict Outage::OnFailure(absl::Time now) {
  if (!watches()) return {};
  std::lock_guard lock(mutex_);
  if (!since_) {
    since_ = now;
    failing_.store(true, std::memory_order_relaxed);
  }
  Verdict verdict{.kind = Verdict::Kind::kNone, .since = *since_, .until = *since_ + limit()};
  if (away_.load(std::memory_order_relaxed)) {
    verdict.kind = now < verdict.until ? Verdict::Kind::kWait : Verdict::Kind::kOver;
  } else if (now - *since_ >= kQuiet) {
    away_.store(true, std::memory_order_relaxed);
    next_probe_ = now + kProbeEvery;
    verdict.kind = Verdict::Kind::kBegun;
  }
  return verdict;
}

std::optional<absl::Time> Outage::OnSuccess() {
  if (!served_.load(std::memory_order_relaxed)) served_.store(true, std::memory_order_relaxed);
  if (!failing_.load(std::memory_order_relaxed)) return std::nullopt;
  std::lock_guard lock(mutex_);
  const std::optional<absl::Time> since = std::exchange(since_, std::nullopt);
  failing_.store(false, std::memory_order_relaxed);
  return away_.exchange(false, std::memory_order_relaxed) ? since : std::nullopt;
}

absl::Duration Outage::TakeTurn(absl::Time now) {
  if (!away_.load(std::memory_order_relaxed)) return absl::ZeroDuration();
  std::lock_guard lock(mutex_);
  // Beyond the limit every request finds out by itself, and ends.
  if (!since_ || now >= *since_ + limit()) return absl::ZeroDuration();
  if (now < next_probe_) return kPoll;
  next_probe_ = now + kProbeEvery;
  return absl::ZeroDuration();
}

}  // namespace millrace
