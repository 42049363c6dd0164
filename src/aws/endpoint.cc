#include "aws/endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "absl/strings/ascii.h"

namespace millrace {

namespace {

bool PlausibleHost(std::string_view host, bool ipv6) {
  return !host.empty() && host.size() <= 255 && std::all_of(host.begin(), host.end(), [ipv6](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_' || (ipv6 && c == ':');
  });
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

struct Partition {
  std::string_view prefix;  // of its regions
  std::string_view name;
  std::string_view domain;
};

const Partition& PartitionOf(std::string_view region) {
  static constexpr Partition kAws = {"", "aws", "amazonaws.com"};
  static constexpr std::array<Partition, 7> kOthers = {{
      {"cn-", "aws-cn", "amazonaws.com.cn"},
      {"us-gov-", "aws-us-gov", "amazonaws.com"},
      {"us-iso-", "aws-iso", "c2s.ic.gov"},
      {"us-isob-", "aws-iso-b", "sc2s.sgov.gov"},
      {"us-isof-", "aws-iso-f", "csp.hci.ic.gov"},
      {"eu-isoe-", "aws-iso-e", "cloud.adc-e.uk"},
      {"eusc-", "aws-eusc", "amazonaws.eu"},
  }};
  const auto at = std::find_if(kOthers.begin(), kOthers.end(),
                               [region](const Partition& partition) { return region.starts_with(partition.prefix); });
  return at == kOthers.end() ? kAws : *at;
}

}  // namespace

bool IsLoopback(std::string_view host) {
  return host == "localhost" || host == "::1" || (host.starts_with("127.") && IsIpv4Address(host));
}

absl::StatusOr<EndpointUrl> ParseEndpointUrl(std::string_view url) {
  const auto refuse = [url](std::string_view why) {
    // If there is an '@', some of it may be a password, and it is not known which part: a password may contain any
    // separator. A query may be that of a presigned URL.
    const bool secret = url.find_first_of("@?") != std::string_view::npos;
    const std::string shown = secret ? "(not shown: it may contain a secret)" : fmt::format("'{}'", url);
    return absl::InvalidArgumentError(
        fmt::format("the S3 endpoint {} {}; expected http[s]://host[:port][/path]", shown, why));
  };
  EndpointUrl result;
  std::string_view rest = url;
  const std::string scheme = absl::AsciiStrToLower(std::string(url.substr(0, std::min<size_t>(url.size(), 8))));
  if (scheme.starts_with("https://")) {
    result.server.tls = true;
    result.server.port = 443;
    rest = url.substr(8);
  } else if (scheme.starts_with("http://")) {
    rest = url.substr(7);
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

std::string_view AwsDomain(std::string_view region) {
  return PartitionOf(region).domain;
}

std::string_view AwsPartition(std::string_view region) {
  return PartitionOf(region).name;
}

absl::StatusOr<EndpointUrl> ServiceEndpoint(std::string_view service, std::string_view region,
                                            const std::string& custom_url, std::string_view variable) {
  absl::StatusOr<EndpointUrl> endpoint = ParseEndpointUrl(
      custom_url.empty() ? fmt::format("https://{}.{}.{}", service, region, AwsDomain(region)) : custom_url);
  return endpoint.ok() ? std::move(endpoint) : Annotate(endpoint.status(), variable);
}

bool PlausibleRegion(std::string_view region) {
  return !region.empty() && region.size() <= 64 && std::all_of(region.begin(), region.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
  });
}

}  // namespace millrace
