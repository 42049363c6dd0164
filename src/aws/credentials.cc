#include "aws/credentials.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "aws/credential_chain.h"
#include "base/log.h"
#include "base/rng.h"

namespace millrace {

CredentialsProvider::CredentialsProvider(Credentials first, Fetch fetch, uint64_t jitter_key)
    : fixed_(std::move(first)), fetch_(std::move(fetch)), jitter_key_(jitter_key) {
  if (fetch_ && !fixed_.anonymous()) current_ = std::make_shared<const Credentials>(fixed_);
}

CredentialsProvider::Shared CredentialsProvider::Get(absl::Time now) {
  // Nobody owns it, so that threads do not share a count either.
  if (!fetch_) return fixed_.anonymous() ? nullptr : Shared(std::shared_ptr<void>(), &fixed_);
  std::unique_lock lock(mutex_);
  if (!Usable(now)) return nullptr;
  Shared current = current_;
  if (now >= refresh_at_ && !fetching_) StartFetch(std::move(lock));
  return current;
}

void CredentialsProvider::Wait(absl::Time now, Waiter ready) {
  std::unique_lock lock(mutex_);
  if (Usable(now)) {
    lock.unlock();
    return ready(absl::OkStatus());
  }
  // A failure that takes long must not be waited for by each of many requests in turn.
  if (!fetch_ || (!fetching_ && !failure_.ok() && now - failed_at_ < kFailureLife)) {
    absl::Status why = fetch_ ? failure_ : absl::UnauthenticatedError("there are no AWS credentials");
    lock.unlock();
    return ready(std::move(why));
  }
  waiters_.push_back(std::move(ready));
  if (!fetching_) StartFetch(std::move(lock));
}

bool CredentialsProvider::Reject(const Shared& used, absl::Time now) {
  if (!fetch_) return false;
  std::unique_lock lock(mutex_);
  if (current_ != used) return true;  // others have come meanwhile
  // Fetched just now: the next ones would be no better, and asking for each request would be a storm.
  if (!rejected_ && now - fetched_at_ < kMinAge) return false;
  rejected_ = true;
  if (!fetching_) StartFetch(std::move(lock));
  return true;
}

void CredentialsProvider::StartFetch(std::unique_lock<std::mutex> lock) {
  fetching_ = true;
  ++fetches_;
  lock.unlock();
  fetch_([this](absl::StatusOr<ExpiringCredentials> result, absl::Time now) { OnFetched(std::move(result), now); });
}

void CredentialsProvider::OnFetched(absl::StatusOr<ExpiringCredentials> result, absl::Time now) {
  // Without this, a waiting request would find no credentials and fetch again, for ever.
  if (result.ok() && result->expires <= now) result = absl::UnauthenticatedError("the AWS credentials have expired");
  std::vector<Waiter> waiters;
  absl::Status status = result.status();
  bool serves = false;
  {
    std::lock_guard lock(mutex_);
    fetching_ = false;
    const double jitter = Rng(HashKey(jitter_key_, {fetches_})).Unit();
    failure_ = status;
    if (status.ok()) {
      current_ = std::make_shared<const Credentials>(std::move(result->keys));
      expires_ = result->expires;
      rejected_ = false;
      fetched_at_ = now;
      refresh_at_ = RefreshTime(now, jitter);
    } else {
      failed_at_ = now;
      // The source is away: the store may still take what it gave last, and says so if not. That there is no source any
      // more means that the metadata service, which is asked last, does not answer.
      const bool away = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
                        absl::StartsWith(status.message(), ToAbsl(kNoCredentials));
      if (away && current_ != nullptr && !rejected_ && now + kShortest > expires_) {
        expires_ = now + kExtension * (1 + jitter);
        Log(LogLevel::kWarning, "s3",
            "the AWS credentials have come to their end, and their source does not answer: they are used further, and "
            "the source is asked again");
      }
      if (Usable(now)) {
        refresh_at_ = RetryTime(now, jitter);
        // Nobody waits for the error, so it is logged.
        Log(LogLevel::kWarning, "s3",
            fmt::format("fetching credentials ahead of their end failed; the old ones serve until {}: {}",
                        absl::FormatTime(absl::RFC3339_sec, expires_, absl::UTCTimeZone()), ToStd(status.message())));
      }
    }
    waiters.swap(waiters_);
    serves = Usable(now);
  }
  for (Waiter& ready : waiters) ready(serves ? absl::OkStatus() : status);
}

absl::Time CredentialsProvider::RefreshTime(absl::Time now, double jitter) const {
  if (expires_ == absl::InfiniteFuture()) return expires_;
  // Some sources hand out what is about to end; these are asked for again, but not all the time.
  const absl::Duration pause = std::clamp((expires_ - now) / 4, absl::Seconds(1), absl::Minutes(1));
  return std::max(expires_ - kLead * (1 + jitter), now + pause);
}

absl::Time CredentialsProvider::RetryTime(absl::Time now, double jitter) const {
  const absl::Duration pause = std::clamp((expires_ - now) / 4, absl::Seconds(1), absl::Minutes(1));
  return now + pause * (0.5 + 0.5 * jitter);
}

}  // namespace millrace
