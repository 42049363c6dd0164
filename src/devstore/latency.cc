#include "devstore/latency.h"

#include <cmath>
#include <numbers>

#include "base/rng.h"

namespace millrace {

namespace {

constexpr uint64_t kLatencyDomain = 0x6c6174656e6379;  // "latency"
constexpr uint64_t kAttemptDomain = 0x617474656d7074;  // "attempt"
constexpr size_t kMaxRequests = size_t{1} << 21;
constexpr size_t kMaxPrefixes = size_t{1} << 16;

}  // namespace

std::chrono::nanoseconds FirstByteDelay(const LatencyModel& model, uint64_t seed, const RequestIdentity& request) {
  Rng rng(HashIdentity(kLatencyDomain, seed, request));
  double ms = model.tail_ms;
  if (rng.Unit() >= model.tail_fraction) {
    // Box and Muller's normal draw; 1 - u keeps the logarithm's argument above 0.
    const double radius = std::sqrt(-2 * std::log(1 - rng.Unit()));
    const double normal = radius * std::cos(2 * std::numbers::pi * rng.Unit());
    ms = model.first_byte_ms * std::exp(model.first_byte_sigma * normal);
  }
  return std::chrono::nanoseconds(static_cast<int64_t>(std::min(ms, 86'400'000.0) * 1e6));
}

std::chrono::steady_clock::time_point LeavesAt(std::chrono::steady_clock::time_point arrived,
                                               std::chrono::nanoseconds delay) {
  // Halves of each other, so that answers of different delays meet.
  std::chrono::nanoseconds grid = std::chrono::milliseconds(2);
  while (grid > delay / 16) grid /= 2;
  const std::chrono::nanoseconds due = (arrived + delay).time_since_epoch();
  if (grid.count() == 0) return arrived + delay;
  return std::chrono::steady_clock::time_point((due + grid - std::chrono::nanoseconds(1)) / grid * grid);
}

uint64_t AttemptCounter::Next(const RequestIdentity& request) {
  const uint64_t hash = HashIdentity(kAttemptDomain, 0, request);
  std::lock_guard lock(mutex_);
  if (seen_.size() >= kMaxRequests) seen_.clear();
  return seen_[hash]++;
}

bool PrefixRates::Take(std::string_view key, std::chrono::steady_clock::time_point now) {
  if (per_second_ == 0) return true;
  const size_t slash = key.rfind('/');
  std::string prefix(key.substr(0, slash == std::string_view::npos ? key.size() : slash + 1));
  std::lock_guard lock(mutex_);
  if (buckets_.size() >= kMaxPrefixes) {
    for (auto entry = buckets_.begin(); entry != buckets_.end();) {
      entry = entry->second.IsFull(now) ? buckets_.erase(entry) : std::next(entry);
    }
    if (buckets_.size() >= kMaxPrefixes) buckets_.clear();
  }
  return buckets_.try_emplace(std::move(prefix), per_second_, now).first->second.Take(now);
}

}  // namespace millrace
