#include "s3/context.h"

#include <fmt/format.h>

#include <utility>

#include "absl/time/clock.h"
#include "aws/credential_chain.h"
#include "base/rng.h"
#include "s3/bucket_name.h"

namespace millrace {

namespace {

constexpr uint64_t kCredentialsDomain = 0x7333'6372'6564;  // "s3cred"
constexpr uint64_t kJitterDomain = 0x7333'7265'7472'79;    // "s3retry"

absl::Status FindProblem(const S3Config& config) {
  if (!config.endpoint_url.empty()) RETURN_IF_ERROR(ParseEndpointUrl(config.endpoint_url).status());
  if (!config.anonymous && config.credentials.anonymous() && config.credential_environment == nullptr)
    return absl::UnauthenticatedError(kNoCredentials.data());
  return absl::OkStatus();
}

std::optional<EndpointUrl> Custom(const std::string& url) {
  absl::StatusOr<EndpointUrl> parsed = ParseEndpointUrl(url);
  return parsed.ok() ? std::optional<EndpointUrl>(*std::move(parsed)) : std::nullopt;
}

}  // namespace

void AddEncryption(HttpHeaders& headers, const S3Config& config) {
  if (config.encryption.empty()) return;
  headers.Set("x-amz-server-side-encryption", config.encryption);
  if (!config.encryption_key.empty()) headers.Set("x-amz-server-side-encryption-aws-kms-key-id", config.encryption_key);
}

void AddEncryption(HttpHeaders& headers, const S3Config& config, std::string_view bucket) {
  if (!IsDirectoryBucket(bucket)) AddEncryption(headers, config);
}

S3Context::S3Context(S3Config settings, uint64_t jitter_seed, CredentialsProvider::Fetch fetch,
                     CreateSession create_session)
    : config(std::move(settings)),
      problem(FindProblem(config)),
      credentials(config.credentials, config.credential_environment ? std::move(fetch) : CredentialsProvider::Fetch(),
                  HashKey(kCredentialsDomain, {jitter_seed})),
      endpoint_(Custom(config.endpoint_url)),
      jitter_seed_(jitter_seed),
      create_session_(std::move(create_session)) {}

CredentialsProvider& S3Context::Session(std::string_view bucket) {
  const uint64_t jitter_key = NextJitterKey();
  std::lock_guard lock(mutex_);
  std::unique_ptr<CredentialsProvider>& session = sessions_[std::string(bucket)];
  if (session == nullptr) {
    session = std::make_unique<CredentialsProvider>(
        Credentials{},
        [this, bucket = std::string(bucket)](CredentialsProvider::Fetched done) {
          if (!create_session_) return done(absl::UnauthenticatedError("sessions are not made here"), absl::Now());
          create_session_(bucket, std::move(done));
        },
        jitter_key);
  }
  return *session;
}

S3Address S3Context::Address(std::string_view bucket, std::string_view key, std::string_view region) const {
  return AddressOf(endpoint_, region, config.addressing, bucket, key, config.aws_endpoint);
}

absl::Status S3Context::CheckBucket(std::string_view bucket) const {
  ASSIGN_OR_RETURN(const S3BucketName name, ParseBucketName(bucket));
  if (name.kind == S3BucketName::Kind::kDirectory && config.anonymous) {
    return absl::InvalidArgumentError(
        "a directory bucket takes signed requests only: unset MILLRACE_S3_ANONYMOUS, omit --no-sign-request");
  }
  if (name.kind != S3BucketName::Kind::kAccessPoint) return absl::OkStatus();
  if (AwsPartition(name.region) != AwsPartition(config.region)) {
    return absl::InvalidArgumentError(
        fmt::format("the access point is in {} ({}), and the region of these settings, {}, in {}: set AWS_REGION={}",
                    name.region, AwsPartition(name.region), config.region, AwsPartition(config.region), name.region));
  }
  if (!config.use_arn_region && name.region != config.region) {
    return absl::InvalidArgumentError(
        fmt::format("the access point is in {}, the region of these settings is {}, and use_arn_region is false: set "
                    "AWS_REGION={}, or AWS_S3_USE_ARN_REGION=true",
                    name.region, config.region, name.region));
  }
  if (endpoint_ && IsIpAddress(endpoint_->server.host)) {
    return absl::InvalidArgumentError(
        "an access point is named in the host, which the IP address of AWS_ENDPOINT_URL does not admit; unset it, or "
        "name a host");
  }
  return absl::OkStatus();
}

std::string S3Context::Region(std::string_view bucket) const {
  if (IsBucketArn(bucket)) {
    const absl::StatusOr<S3BucketName> name = ParseBucketName(bucket);
    if (name.ok()) return name->region;
  }
  if (!knows_regions_.load(std::memory_order_acquire)) return config.region;
  std::lock_guard lock(mutex_);
  const auto at = regions_.find(bucket);
  return at == regions_.end() ? config.region : at->second;
}

bool S3Context::LearnRegion(std::string_view bucket, std::string_view region) {
  if (IsBucketArn(bucket) || !PlausibleRegion(region) || region == Region(bucket)) return false;
  std::lock_guard lock(mutex_);
  regions_.insert_or_assign(std::string(bucket), std::string(region));
  knows_regions_.store(true, std::memory_order_release);
  return true;
}

uint64_t S3Context::NextJitterKey() {
  return HashKey(kJitterDomain, {jitter_seed_, exchanges_.fetch_add(1, std::memory_order_relaxed)});
}

}  // namespace millrace
