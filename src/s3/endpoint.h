#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "net/http_message.h"

/// Which server, Host and path a bucket and key are reached by. Pure.

namespace millrace {

/// A URL of the form http[s]://host[:port][/base/path].
struct EndpointUrl {
  HttpEndpoint server;
  std::string base_path;  // "" or "/base/path", without a slash at the end
};

/// InvalidArgument names what is wrong with it, and the URL unless it has a user name and so perhaps a password.
absl::StatusOr<EndpointUrl> ParseEndpointUrl(std::string_view url);

/// The value of the Host header: the port only when it is not the scheme's own, IPv6 in brackets.
std::string HostHeader(const HttpEndpoint& server);

struct S3Address {
  HttpEndpoint server;
  std::string host;  // Host header
  std::string path;  // encoded
};

/// Whether the bucket is named in the path or in the host's name ("virtual host").
enum class S3Addressing {
  kAuto,     // AWS: in the host; custom endpoints: in the path
  kVirtual,  // in the host
  kPath,
};

/// Which of AWS's endpoints of a region; nothing of a custom one.
struct AwsEndpointKind {
  bool dual_stack = false;  // by IPv6, too
  bool fips = false;        // with cryptography that FIPS 140 admits
};

/// A bucket whose name cannot be a host's under AWS's certificate (with dots, for instance) goes by path whatever
/// `addressing` says, and so does an endpoint that is an IP address. `key` is empty for requests about the bucket.
S3Address AddressOf(const std::optional<EndpointUrl>& custom, std::string_view region, S3Addressing addressing,
                    std::string_view bucket, std::string_view key, AwsEndpointKind kind = {});

/// Whether the host is this machine by name or address ("localhost", 127.0.0.0/8, ::1): what is sent there passes no
/// network.
bool IsLoopback(std::string_view host);

/// True for 1 to 255 letters, digits, '.', '-' and '_', other than "." and "..". Whether a bucket may have that name is
/// for the store to say; these cannot be mistaken for something else in a path.
bool PlausibleBucket(std::string_view bucket);

/// True for a name such as "eu-west-1": what servers send is checked before it becomes a part of a host name.
bool PlausibleRegion(std::string_view region);

}  // namespace millrace
