#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "net/http_message.h"

/// These functions find the servers of AWS's services, and of those that stand in for them. Pure.

namespace millrace {

/// Holds a URL of the form http[s]://host[:port][/base/path].
struct EndpointUrl {
  HttpEndpoint server;
  std::string base_path;  // "" or "/base/path", without a slash at the end
};

/// InvalidArgument names what is wrong with it, and the URL unless it has a user name and so perhaps a password.
absl::StatusOr<EndpointUrl> ParseEndpointUrl(std::string_view url);

/// Returns the end of the names of all servers in a region: "amazonaws.com", in other partitions, such as China's,
/// another.
std::string_view AwsDomain(std::string_view region);

/// Returns "aws", "aws-cn", "aws-us-gov" and so on.
std::string_view AwsPartition(std::string_view region);

/// Returns the endpoint of a service in a region, for example ServiceEndpoint("sts", "eu-west-1", "",
/// "AWS_ENDPOINT_URL_STS"), or `custom_url` if it is not empty. Returns InvalidArgument, with the name of the variable,
/// if that is not a URL.
absl::StatusOr<EndpointUrl> ServiceEndpoint(std::string_view service, std::string_view region,
                                            const std::string& custom_url, std::string_view variable);

/// Returns true if the host is this machine by name or address ("localhost", 127.0.0.0/8, ::1): what is sent there
/// passes no network.
bool IsLoopback(std::string_view host);

/// Returns true for a name such as "eu-west-1": what servers send is checked before it becomes a part of a host name.
bool PlausibleRegion(std::string_view region);

}  // namespace millrace
