#include "s3/retry.h"

#include <algorithm>
#include <charconv>

#include "net/http_date.h"

namespace millrace {

std::optional<absl::Duration> ParseRetryAfter(std::string_view value, absl::Time now) {
  uint32_t seconds = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (error == std::errc() && end == value.data() + value.size()) {
    return std::min(absl::Seconds(seconds), kMaxRetryAfter);
  }
  const std::optional<absl::Time> date = ParseHttpDate(value);
  if (!date) return std::nullopt;
  return std::clamp(*date - now, absl::ZeroDuration(), kMaxRetryAfter);
}

absl::Duration RetryBudget::Spend(absl::Time now) {
  std::lock_guard lock(mutex_);
  if (updated_ && now > *updated_) {
    tokens_ = std::min(kCapacity, tokens_ + kPerSecond * absl::ToDoubleSeconds(now - *updated_));
  }
  if (!updated_ || now > *updated_) updated_ = now;
  tokens_ -= 1;
  full_.store(false, std::memory_order_relaxed);
  return tokens_ >= 0 ? absl::ZeroDuration() : absl::Seconds(-tokens_ / kPerSecond);
}

void RetryBudget::OnSuccess() {
  if (full_.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(mutex_);
  tokens_ = std::min(kCapacity, tokens_ + kPerSuccess);
  full_.store(tokens_ == kCapacity, std::memory_order_relaxed);
}

}  // namespace millrace
