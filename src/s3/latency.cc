#include "s3/latency.h"

#include <algorithm>
#include <cmath>

namespace millrace {

namespace {

constexpr double kFirstBucketSeconds = 1e-4;
constexpr double kEndlessSeconds = 1e6;
constexpr double kLogWidth = 0.087;  // ln 1.091
constexpr double kLeastSeen = 100;

// About a hundredth of the first bytes never come by themselves. Nine tenths of the second requests for them must come
// in time: then a thousandth is left. The rest of three medians is kept for the time of a second connection.
constexpr double kLateMedians = 3;
constexpr double kFewLate = 0.005;  // share of first bytes later than that
constexpr double kSecondQuantile = 0.9;
constexpr double kInTime = 0.9;
// No more than a fifth is asked for twice, however wide the distribution is.
constexpr double kLeastQuantile = 0.82;
constexpr absl::Duration kLeastDelay = absl::Milliseconds(5);
constexpr double kExtraBytes = 0.03;
constexpr double kRequestsPerRead = 0.005;
constexpr double kRequestsPerWin = 30;
constexpr int kUpdateEvery = 32;

// A body slower than this part of what is usual is given up, or than this many bytes a second while nothing is known.
constexpr double kSlowPart = 0.02;
constexpr double kSlowRate = 2 << 10;
constexpr double kFastEnough = 64 << 10;
constexpr uint64_t kRateUnit = 64 << 10;
constexpr double kGiveUpsPerBody = 0.05;

}  // namespace

void Durations::Add(absl::Duration duration) {
  const double seconds = std::clamp(absl::ToDoubleSeconds(duration), kFirstBucketSeconds, kEndlessSeconds);
  const auto bucket = static_cast<size_t>(std::log(seconds / kFirstBucketSeconds) / kLogWidth);
  counts_[std::min(bucket, kBuckets - 1)] += 1;
  total_ += 1;
  if (total_ < kRemembered) return;
  for (float& count : counts_) count /= 2;
  total_ /= 2;
}

absl::Duration Durations::Quantile(double part) const {
  if (total_ < kLeastSeen) return absl::ZeroDuration();
  double left = part * total_;
  size_t bucket = 0;
  while (bucket + 1 < kBuckets && left > counts_[bucket]) left -= counts_[bucket++];
  const double within = counts_[bucket] > 0 ? std::clamp(left / counts_[bucket], 0.0, 1.0) : 0.5;
  return absl::Seconds(kFirstBucketSeconds * std::exp(kLogWidth * (static_cast<double>(bucket) + within)));
}

absl::Duration Hedging::Delay() {
  std::lock_guard lock(mutex_);
  if (allowance_ <= 0 || requests_ < 1) return absl::InfiniteDuration();
  if (until_update_ <= 0) {
    const absl::Duration late = kLateMedians * first_bytes_.Quantile(0.5);
    late_ = late == absl::ZeroDuration() ? absl::InfiniteDuration() : std::max(late, kLeastDelay);
    const absl::Duration in_time = kInTime * late - first_bytes_.Quantile(kSecondQuantile);
    const bool few = first_bytes_.Quantile(1 - kFewLate) <= late;
    delay_ = few ? late_ : std::max({first_bytes_.Quantile(kLeastQuantile), in_time, kLeastDelay});
    until_update_ = kUpdateEvery;
  }
  --until_update_;
  return requests_ < kFewRequests ? late_ : delay_;
}

bool Hedging::Take() {
  std::lock_guard lock(mutex_);
  if (allowance_ <= 0 || requests_ < 1) return false;
  requests_ -= 1;
  return true;
}

void Hedging::OnFirstByte(absl::Duration after) {
  std::lock_guard lock(mutex_);
  first_bytes_.Add(after);
  requests_ = std::min(kMaxRequests, requests_ + kRequestsPerRead);
}

void Hedging::OnLost() {
  std::lock_guard lock(mutex_);
  first_bytes_.AddEndless();
  requests_ = std::min(kMaxRequests, requests_ + kRequestsPerWin);
}

void Hedging::OnBody(uint64_t bytes, absl::Duration took) {
  std::lock_guard lock(mutex_);
  allowance_ = std::min(kMaxAllowance, allowance_ + kExtraBytes * static_cast<double>(bytes));
  give_ups_ = std::min(kMaxGiveUps, give_ups_ + kGiveUpsPerBody);
  if (bytes >= kRateUnit) bodies_.Add(took * (static_cast<double>(kRateUnit) / static_cast<double>(bytes)));
}

void Hedging::OnWasted(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  allowance_ -= static_cast<double>(bytes);
}

bool Hedging::GiveUp(double bytes_per_second) {
  std::lock_guard lock(mutex_);
  const absl::Duration usual = bodies_.Quantile(0.5);
  const double least = usual == absl::ZeroDuration()
                           ? kSlowRate
                           : std::min(kFastEnough, kSlowPart * kRateUnit / absl::ToDoubleSeconds(usual));
  if (bytes_per_second >= least || give_ups_ < 1) return false;
  give_ups_ -= 1;
  return true;
}

}  // namespace millrace
