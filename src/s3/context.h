#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "aws/credentials.h"
#include "aws/endpoint.h"
#include "net/http_message.h"
#include "s3/address.h"
#include "s3/client.h"
#include "s3/latency.h"
#include "s3/outage.h"
#include "s3/pace.h"
#include "s3/retry.h"

namespace millrace {

/// Adds the headers with which a new object is encrypted as the configuration says. Not for parts of uploads.
void AddEncryption(HttpHeaders& headers, const S3Config& config);
/// Adds the headers for a bucket. Those of a directory bucket belong to its session.
void AddEncryption(HttpHeaders& headers, const S3Config& config, std::string_view bucket);

/// Holds what the exchanges of one S3Client share, and what they learn for one another. Thread-safe.
class S3Context {
 public:
  /// `jitter_seed` must differ between processes, so that their retries do not march in step.
  /// `fetch` gets credentials from the config's `credential_environment`; `create_session` makes the session of a
  /// directory bucket (NewCreateSessionExchange).
  using CreateSession = std::function<void(std::string bucket, CredentialsProvider::Fetched done)>;
  S3Context(S3Config settings, uint64_t jitter_seed, CredentialsProvider::Fetch fetch = {},
            CreateSession create_session = {});

  const S3Config config;
  const absl::Status problem;  // of the settings; every request fails with it
  CredentialsProvider credentials;
  RetryBudget budget;
  Pacer pacer;
  Hedging hedging;
  Outage outage;
  RequestCounters counters;

  /// Returns the credentials of the session of a directory bucket, which requests about it share.
  CredentialsProvider& Session(std::string_view bucket);

  /// `region` is Region(bucket).
  S3Address Address(std::string_view bucket, std::string_view key, std::string_view region) const;
  /// Returns the region that signs requests about the bucket: it is in the ARN of an access point, else it is learned.
  std::string Region(std::string_view bucket) const;
  /// Returns InvalidArgument, with the remedy, if the settings do not admit a request about it (s3/bucket_name.h).
  absl::Status CheckBucket(std::string_view bucket) const;
  /// The name is for messages.
  std::string endpoint_name() const { return config.endpoint_url.empty() ? "S3" : config.endpoint_url; }
  /// Returns whether requests in flight cannot be changed: they go over TLS, or never leave this machine.
  bool secure() const { return !endpoint_ || endpoint_->server.tls || IsLoopback(endpoint_->server.host); }
  /// Returns whether requests go out over plain HTTP.
  bool plain() const { return endpoint_ && !endpoint_->server.tls; }
  /// Returns false when nothing is new: the region is the one already in use.
  bool LearnRegion(std::string_view bucket, std::string_view region);

  /// Returns whether any server has ever answered: if not, the endpoint is more likely wrong than broken.
  bool reached() const { return reached_.load(std::memory_order_relaxed); }
  void SetReached() {
    if (!reached()) reached_.store(true, std::memory_order_relaxed);
  }

  /// Returns whether the store's ETags were found not to be the MD5s that they look like.
  bool etags_opaque() const { return etags_opaque_.load(std::memory_order_relaxed); }
  void SetEtagsOpaque() { etags_opaque_.store(true, std::memory_order_relaxed); }

  /// Returns whether a request that was made in the last seconds has succeeded.
  bool AnsweredLately(absl::Time now) const {
    return absl::ToUnixMillis(now) - answered_ms_.load(std::memory_order_relaxed) < 10'000;
  }
  void SetAnswered(absl::Time sent) { answered_ms_.store(absl::ToUnixMillis(sent), std::memory_order_relaxed); }

  /// Returns whether a warning of requests that keep failing may be logged now: one in ten seconds.
  bool TakeWarning(absl::Time now) {
    int64_t last = warned_ms_.load(std::memory_order_relaxed);
    const int64_t now_ms = absl::ToUnixMillis(now);
    return now_ms - last >= 10'000 && warned_ms_.compare_exchange_strong(last, now_ms, std::memory_order_relaxed);
  }

  /// Returns the store's clock minus ours.
  absl::Duration clock_offset() const { return absl::Milliseconds(clock_offset_ms_.load(std::memory_order_relaxed)); }
  void LearnClockOffset(absl::Duration offset) {
    clock_offset_ms_.store(absl::ToInt64Milliseconds(offset), std::memory_order_relaxed);
  }

  /// Returns a new key for the jitter of one exchange.
  uint64_t NextJitterKey();

 private:
  const std::optional<EndpointUrl> endpoint_;
  const uint64_t jitter_seed_;
  std::atomic<uint64_t> exchanges_{0};
  std::atomic<int64_t> clock_offset_ms_{0};
  std::atomic<bool> reached_{false};
  std::atomic<bool> etags_opaque_{false};
  std::atomic<int64_t> answered_ms_{0};  // since 1970
  std::atomic<int64_t> warned_ms_{0};
  std::atomic<bool> knows_regions_{false};  // of buckets elsewhere
  mutable std::mutex mutex_;
  std::map<std::string, std::string, std::less<>> regions_;  // of buckets elsewhere
  const CreateSession create_session_;
  std::map<std::string, std::unique_ptr<CredentialsProvider>, std::less<>> sessions_;  // of directory buckets
};

}  // namespace millrace
