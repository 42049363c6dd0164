#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "aws/credential_documents.h"
#include "base/status.h"

namespace millrace {

/// Provides the credentials of one client. Those that end are fetched again 5 to 10 minutes before, once for all
/// requests. The old ones serve until they end, also when fetching fails; it is tried again. If their source does not
/// answer at all, they serve beyond their end, until the store rejects them or the source answers. A request that asks
/// when there are none waits for the fetch. It has no clock and no I/O of its own. Thread-safe.
class CredentialsProvider {
 public:
  using Shared = std::shared_ptr<const Credentials>;
  using Waiter = absl::AnyInvocable<void(absl::Status)>;
  using Fetched = absl::AnyInvocable<void(absl::StatusOr<ExpiringCredentials>, absl::Time now)>;
  /// Begins to fetch; calls back exactly once, from any thread, perhaps at once. One at a time.
  using Fetch = std::function<void(Fetched done)>;

  /// If there is no `fetch`, `first` never changes, and asking takes no lock. Otherwise `first`, unless it is empty,
  /// serves until it is rejected. A fetch that has begun must not call back after the destructor.
  CredentialsProvider(Credentials first, Fetch fetch, uint64_t jitter_key);
  CredentialsProvider(const CredentialsProvider&) = delete;
  CredentialsProvider& operator=(const CredentialsProvider&) = delete;

  /// Returns the current ones, valid as long as this lives; nullptr if there are none: then call Wait.
  Shared Get(absl::Time now);
  /// Calls `ready` once, when there are credentials or with the reason why there are none; perhaps at once.
  void Wait(absl::Time now, Waiter ready);
  /// The store does not take `used` any more. True when Get may give others, now or after a Wait; false when nothing
  /// better can be had.
  bool Reject(const Shared& used, absl::Time now);

  static constexpr absl::Duration kLead = absl::Minutes(5);         // at least, before the end
  static constexpr absl::Duration kExtension = absl::Minutes(5);    // at least, while the source is away
  static constexpr absl::Duration kShortest = absl::Seconds(1);     // before their end they count as ended
  static constexpr absl::Duration kFailureLife = absl::Seconds(1);  // so long a failure is the answer to requests
  static constexpr absl::Duration kMinAge = absl::Seconds(10);      // younger ones that are rejected stay

 private:
  bool Usable(absl::Time now) const { return current_ != nullptr && !rejected_ && now < expires_; }
  /// Unlocks: fetch_ may call back at once.
  void StartFetch(std::unique_lock<std::mutex> lock);
  void OnFetched(absl::StatusOr<ExpiringCredentials> result, absl::Time now);
  absl::Time RefreshTime(absl::Time now, double jitter) const;
  absl::Time RetryTime(absl::Time now, double jitter) const;

  const Credentials fixed_;
  const Fetch fetch_;
  const uint64_t jitter_key_;

  std::mutex mutex_;
  Shared current_;
  absl::Time expires_ = absl::InfiniteFuture();
  absl::Time refresh_at_ = absl::InfiniteFuture();
  absl::Time fetched_at_ = absl::InfinitePast();
  bool rejected_ = false;
  bool fetching_ = false;
  uint64_t fetches_ = 0;
  absl::Status failure_;  // of the last fetch
  absl::Time failed_at_ = absl::InfinitePast();
  std::vector<Waiter> waiters_;
};

}  // namespace millrace
