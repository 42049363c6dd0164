#include "s3/address.h"

#include <fmt/format.h>

#include <algorithm>

#include "aws/sigv4.h"
#include "s3/bucket_name.h"

namespace millrace {

namespace {

bool IsLowerAlphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool FitsHostName(std::string_view bucket) {
  return bucket.size() >= 3 && bucket.size() <= 63 && IsLowerAlphanumeric(bucket.front()) &&
         IsLowerAlphanumeric(bucket.back()) &&
         std::all_of(bucket.begin(), bucket.end(), [](char c) { return IsLowerAlphanumeric(c) || c == '-'; });
}

/// Appends the bucket, unless it is in the host, and the key.
void AppendPath(std::string* path, bool in_host, std::string_view bucket, std::string_view key) {
  path->reserve(path->size() + bucket.size() + key.size() + key.size() / 4 + 2);
  if (!in_host) {
    path->push_back('/');
    AppendUriEncoded(path, bucket, /*keep_slash=*/false);
  }
  if (key.empty() && !path->empty()) return;
  path->push_back('/');
  AppendUriEncoded(path, key, /*keep_slash=*/true);
}

/// Returns the address of an access point or a directory bucket. The name is in the host; as in botocore, that of a
/// directory bucket is in the path if the endpoint is an IP address.
S3Address SpecialAddress(const std::optional<EndpointUrl>& custom, std::string_view region, const S3BucketName& name,
                         std::string_view bucket, std::string_view key, AwsEndpointKind kind) {
  const bool is_access_point = name.kind == S3BucketName::Kind::kAccessPoint;
  if (is_access_point) region = name.region;
  const std::string_view fips = kind.fips ? "-fips" : "";
  const std::string service =
      is_access_point ? fmt::format("s3-accesspoint{}", fips) : fmt::format("s3express{}-{}", fips, name.zone);
  S3Address address;
  bool in_host = true;
  if (custom) {
    in_host = !IsIpAddress(custom->server.host);
    address.server = custom->server;
    address.path = custom->base_path;
  } else {
    address.server = {
        fmt::format("{}{}.{}.{}", service, kind.dual_stack ? ".dualstack" : "", region, AwsDomain(region)), 443, true};
  }
  if (in_host) address.server.host = fmt::format("{}.{}", name.label, address.server.host);
  address.host = HostHeader(address.server);
  AppendPath(&address.path, in_host, bucket, key);
  return address;
}

}  // namespace

bool IsIpAddress(std::string_view host) {
  return host.find_first_not_of("0123456789.") == std::string_view::npos || host.find(':') != std::string_view::npos;
}

S3Address AddressOf(const std::optional<EndpointUrl>& custom, std::string_view region, S3Addressing addressing,
                    std::string_view bucket, std::string_view key, AwsEndpointKind kind) {
  S3Address address;
  if (IsBucketArn(bucket) || IsDirectoryBucket(bucket)) {
    const absl::StatusOr<S3BucketName> name = ParseBucketName(bucket);
    if (name.ok()) return SpecialAddress(custom, region, *name, bucket, key, kind);
  }
  bool in_host = addressing != S3Addressing::kPath && FitsHostName(bucket);
  if (custom) {
    in_host = in_host && addressing == S3Addressing::kVirtual && !IsIpAddress(custom->server.host);
    address.server = custom->server;
    address.path = custom->base_path;
  } else {
    address.server = {fmt::format("s3{}{}.{}.{}", kind.fips ? "-fips" : "", kind.dual_stack ? ".dualstack" : "", region,
                                  AwsDomain(region)),
                      443, true};
  }
  if (in_host) address.server.host = fmt::format("{}.{}", bucket, address.server.host);
  address.host = HostHeader(address.server);
  AppendPath(&address.path, in_host, bucket, key);
  return address;
}

bool PlausibleBucket(std::string_view bucket) {
  return ParseBucketName(bucket).ok();
}

}  // namespace millrace
