#include "s3/address.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "aws/sigv4.h"

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

bool IsIpAddress(std::string_view host) {
  return host.find_first_not_of("0123456789.") == std::string_view::npos || host.find(':') != std::string_view::npos;
}

}  // namespace

S3Address AddressOf(const std::optional<EndpointUrl>& custom, std::string_view region, S3Addressing addressing,
                    std::string_view bucket, std::string_view key, AwsEndpointKind kind) {
  S3Address address;
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
  if (!in_host) address.path.append("/").append(UriEncode(bucket, /*keep_slash=*/false));
  if (!key.empty() || address.path.empty()) address.path.append("/").append(UriEncode(key, /*keep_slash=*/true));
  return address;
}

bool PlausibleBucket(std::string_view bucket) {
  return !bucket.empty() && bucket.size() <= 255 && bucket != "." && bucket != ".." &&
         std::all_of(bucket.begin(), bucket.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_';
         });
}

}  // namespace millrace
