#include "s3/endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "s3/sigv4.h"

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

bool PlausibleHost(std::string_view host, bool ipv6) {
  return !host.empty() && host.size() <= 255 && std::all_of(host.begin(), host.end(), [ipv6](char c) {
    return IsLowerAlphanumeric(c) || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' || c == '_' || (ipv6 && c == ':');
  });
}

bool IsIpAddress(std::string_view host) {
  return host.find_first_not_of("0123456789.") == std::string_view::npos || host.find(':') != std::string_view::npos;
}

// Four numbers up to 255: a name may begin like an address.
bool IsIpv4Address(std::string_view host) {
  for (int parts = 1;; ++parts) {
    const std::string_view part = host.substr(0, host.find('.'));
    unsigned number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error != std::errc() || end != part.data() + part.size() || number > 255) return false;
    if (part.size() == host.size()) return parts == 4;
    host.remove_prefix(part.size() + 1);
  }
}

}  // namespace

bool IsLoopback(std::string_view host) {
  return host == "localhost" || host == "::1" || (host.starts_with("127.") && IsIpv4Address(host));
}

absl::StatusOr<EndpointUrl> ParseEndpointUrl(std::string_view url) {
  const auto refuse = [url](std::string_view why) {
    // With an '@' some of it may be a password, and which part cannot be told: a password may contain any separator. A
    // query may be that of a presigned URL.
    const bool secret = url.find_first_of("@?") != std::string_view::npos;
    const std::string shown = secret ? "(not shown: it may contain a secret)" : fmt::format("'{}'", url);
    return absl::InvalidArgumentError(
        fmt::format("the S3 endpoint {} {}; expected http[s]://host[:port][/path]", shown, why));
  };
  EndpointUrl result;
  std::string_view rest = url;
  if (rest.starts_with("https://")) {
    result.server.tls = true;
    result.server.port = 443;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    return refuse("has no scheme");
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  std::string_view path = rest.substr(slash);
  if (authority.find('@') != std::string_view::npos)
    return refuse("contains a user name; set AWS_ACCESS_KEY_ID instead");
  if (path.find_first_of("?# \r\n\t") != std::string_view::npos) return refuse("has a query or a space");

  std::string_view port;
  const bool ipv6 = authority.starts_with('[');
  if (ipv6) {
    const size_t end = authority.find(']');
    if (end == std::string_view::npos) return refuse("has no ']'");
    result.server.host = authority.substr(1, end - 1);
    port = authority.substr(end + 1);
  } else {
    const size_t colon = std::min(authority.find(':'), authority.size());
    result.server.host = authority.substr(0, colon);
    port = authority.substr(colon);
  }
  if (!PlausibleHost(result.server.host, ipv6)) return refuse("has no valid host name");
  if (!port.empty()) {
    port.remove_prefix(1);
    uint32_t number = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    if (error != std::errc() || end != port.data() + port.size() || number == 0 || number > 65535)
      return refuse("has no valid port");
    result.server.port = static_cast<uint16_t>(number);
  }
  while (path.ends_with('/')) path.remove_suffix(1);
  result.base_path = path;
  return result;
}

std::string HostHeader(const HttpEndpoint& server) {
  const bool ipv6 = server.host.find(':') != std::string::npos;
  const std::string host = ipv6 ? fmt::format("[{}]", server.host) : server.host;
  const uint16_t standard = server.tls ? 443 : 80;
  return server.port == standard ? host : absl::StrCat(host, ":", server.port);
}

S3Address AddressOf(const std::optional<EndpointUrl>& custom, std::string_view region, S3Addressing addressing,
                    std::string_view bucket, std::string_view key, AwsEndpointKind kind) {
  S3Address address;
  bool in_host = addressing != S3Addressing::kPath && FitsHostName(bucket);
  if (custom) {
    in_host = in_host && addressing == S3Addressing::kVirtual && !IsIpAddress(custom->server.host);
    address.server = custom->server;
    address.path = custom->base_path;
  } else {
    const std::string_view suffix = region.starts_with("cn-") ? "amazonaws.com.cn" : "amazonaws.com";
    address.server = {
        fmt::format("s3{}{}.{}.{}", kind.fips ? "-fips" : "", kind.dual_stack ? ".dualstack" : "", region, suffix), 443,
        true};
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
           return IsLowerAlphanumeric(c) || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' || c == '_';
         });
}

bool PlausibleRegion(std::string_view region) {
  return !region.empty() && region.size() <= 64 && std::all_of(region.begin(), region.end(), [](char c) {
    return IsLowerAlphanumeric(c) || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
  });
}

}  // namespace millrace
