#include "service/worker_paces.h"

#include <algorithm>
#include <utility>

namespace millrace {

namespace {

using Seconds = std::chrono::duration<double>;

// The mean is of so many batches, lately.
constexpr uint64_t kMeanOf = 8;
// A batch is late if it takes so many times as long as one of the worker that could send it instead.
constexpr double kLateTimes = 4;
// But never before: below this, a pause of the machine or of the network is as likely.
constexpr std::chrono::milliseconds kMinHedgeDelay{500};
constexpr std::chrono::milliseconds kMinOpeningHedgeDelay{1500};
// This delay applies if nothing is known of the other worker.
constexpr std::chrono::milliseconds kHedgeDelayWithUnknown{1000};
// A hedge without use doubles the delay, so often at most, until there was none for a minute.
constexpr int kMostDoublings = 6;
constexpr std::chrono::seconds kLostCountFor{60};
// A wait of the program that is older than this counts half, and half again for each further such time.
constexpr std::chrono::seconds kAwaitedMemory{10};
// A source gives a stream away under three conditions. The program has waited for it alone for this share of at least
// this time. So many batches of it are known. The other source would be so much faster.
constexpr double kAwaitedShare = 0.2;
constexpr std::chrono::milliseconds kAwaitedOver{1000};
constexpr uint64_t kLeastBatches = 8;
constexpr double kClearlyFaster = 1.5;

double ToSeconds(WorkerPaces::Duration duration) {
  return std::chrono::duration_cast<Seconds>(duration).count();
}

WorkerPaces::Duration FromSeconds(double seconds) {
  return std::chrono::duration_cast<WorkerPaces::Duration>(Seconds(seconds));
}

}  // namespace

WorkerPaces::Pace& WorkerPaces::At(size_t source) {
  if (paces_.size() <= source) paces_.resize(source + 1);
  return paces_[source];
}

void WorkerPaces::OnBatch(size_t source, std::optional<Duration> waited, bool opens) {
  Pace& pace = At(source);
  if (opens) {
    pace.opening = waited ? ToSeconds(*waited) : 0;
    return;
  }
  ++pace.batches;
  if (!waited) return;
  ++pace.waits;
  const double seconds = std::max(0.0, ToSeconds(*waited));
  pace.seconds += (seconds - pace.seconds) / static_cast<double>(std::min(pace.waits, kMeanOf));
}

void WorkerPaces::OnAwaited(std::optional<size_t> source, Time now) {
  if (awaited_ == source) return;
  if (awaited_) {
    Pace& before = At(*awaited_);
    if (before.since) before.awaited += now - *before.since;
    before.since.reset();
  }
  awaited_ = source;
  if (!source) return;
  Pace& pace = At(*source);
  pace.since = now;
  if (!std::exchange(pace.counted, true)) pace.counted_from = now;
  while (now - pace.counted_from > kAwaitedMemory) {
    pace.counted_from += (now - pace.counted_from) / 2;
    pace.awaited /= 2;
  }
}

void WorkerPaces::OnStreams(size_t source, size_t streams, int change, Time now) {
  Pace& pace = At(source);
  const auto after = static_cast<double>(streams);
  const double before = after - change;
  if (before > 0 && after > 0) pace.seconds *= after / before;
  pace.waits = std::min<uint64_t>(pace.waits, 1);
  pace.batches = 0;
  pace.awaited = {};
  pace.counted_from = now;
  pace.counted = true;
  if (pace.since) pace.since = now;
}

std::optional<WorkerPaces::Duration> WorkerPaces::PaceOf(size_t source) const {
  const Pace* const pace = Find(source);
  if (pace == nullptr || pace->waits == 0) return std::nullopt;
  return FromSeconds(pace->seconds);
}

// ---- One batch that is late

WorkerPaces::Duration WorkerPaces::HedgeDelay(size_t source, size_t second, bool opens, bool suspect, Time now) const {
  const Pace* const other = Find(second);
  Duration delay = kHedgeDelayWithUnknown;
  if (opens) {
    delay = std::max<Duration>(suspect ? kMinHedgeDelay : kMinOpeningHedgeDelay,
                               FromSeconds(kLateTimes * (other ? other->opening : 0)));
  } else if (other != nullptr && (other->waits > 0 || other->batches > 0)) {
    delay = std::max<Duration>(kMinHedgeDelay, FromSeconds(kLateTimes * other->seconds));
  }
  const Pace* const own = Find(source);
  const bool counts = own != nullptr && now - own->last_lost < kLostCountFor;
  return delay * (int64_t{1} << (counts ? std::min(own->lost, kMostDoublings) : 0));
}

void WorkerPaces::OnHedgeLost(size_t source, Time now) {
  Pace& pace = At(source);
  if (now - pace.last_lost >= kLostCountFor) pace.lost = 0;
  ++pace.lost;
  pace.last_lost = now;
}

void WorkerPaces::OnHedgeWon(size_t source) {
  At(source).lost = 0;
}

// ---- A source that is slow all the time

bool WorkerPaces::IsAwaited(size_t source, Time now) const {
  const Pace* const pace = Find(source);
  if (pace == nullptr || !pace->counted || pace->batches < kLeastBatches) return false;
  const Duration counted = now - pace->counted_from;
  const Duration awaited = pace->awaited + (pace->since ? now - *pace->since : Duration());
  return counted >= kAwaitedOver && ToSeconds(awaited) >= kAwaitedShare * ToSeconds(counted);
}

bool WorkerPaces::ShouldGive(size_t source, size_t streams, size_t other, size_t others, Time now) const {
  const Pace* const better = Find(other);
  if (streams == 0 || others == 0 || better == nullptr || better->batches < kLeastBatches) return false;
  if (!IsAwaited(source, now)) return false;
  // With one stream more, a source that is bound by its CPUs needs longer for each. One that was never waited for may
  // have to show it.
  const double then = better->seconds * static_cast<double>(others + 1) / static_cast<double>(others);
  return paces_[source].seconds > kClearlyFaster * then;
}

}  // namespace millrace
