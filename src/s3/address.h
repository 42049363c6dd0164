#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "aws/endpoint.h"

/// These are the server, Host header and path of a bucket and a key. Pure.

namespace millrace {

struct S3Address {
  HttpEndpoint server;
  std::string host;  // Host header
  std::string path;  // encoded
};

/// Says where the bucket's name is: in the path, or in the host's name ("virtual host").
enum class S3Addressing {
  kAuto,     // AWS: in the host; custom endpoints: in the path
  kVirtual,  // in the host
  kPath,
};

/// Selects one of AWS's endpoints of a region; it has no effect on a custom one.
struct AwsEndpointKind {
  bool dual_stack = false;  // by IPv6, too
  bool fips = false;        // with cryptography that FIPS 140 admits
};

/// Some names cannot be a host's under AWS's certificate, for instance those with dots. Such a bucket goes by path
/// whatever `addressing` says, and so does an endpoint that is an IP address. Access points and directory buckets go by
/// host (s3/bucket_name.h). `key` is empty for requests about the bucket.
S3Address AddressOf(const std::optional<EndpointUrl>& custom, std::string_view region, S3Addressing addressing,
                    std::string_view bucket, std::string_view key, AwsEndpointKind kind = {});

/// Returns true for IPv4 and IPv6 addresses, in front of which no name can be.
bool IsIpAddress(std::string_view host);

/// Returns true for 1 to 255 letters, digits, '.', '-' and '_', except "." and "..", and for ARNs of access points. The
/// store decides whether a bucket may have that name; these cannot be mistaken for something else in a path.
bool PlausibleBucket(std::string_view bucket);

}  // namespace millrace
