#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "aws/credential_source.h"
#include "aws/endpoint.h"

/// These are sources of credentials on this machine or near it: keys, a process, the endpoint of a container, the
/// metadata service of an EC2 instance.

namespace millrace {

/// Gives keys that are known already. `name` is for messages.
std::unique_ptr<CredentialSource> StaticSource(std::string name, Credentials keys);

/// Runs credential_process of a profile.
std::unique_ptr<CredentialSource> ProcessSource(std::string profile, std::string command);

/// The place that a container asks for credentials (ECS, EKS Pod Identity).
struct ContainerEndpoint {
  HttpEndpoint server;
  std::string target;
  std::string token;       // of the Authorization header
  std::string token_file;  // wins over it; read each time
};
/// Parses AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, or _FULL_URI: https, or http to this machine or to one of the
/// addresses that ECS and EKS use. Returns InvalidArgument for anything else: the token must not go to strangers.
absl::StatusOr<ContainerEndpoint> ParseContainerUri(std::string_view relative, std::string_view full);
std::unique_ptr<CredentialSource> ContainerSource(ContainerEndpoint endpoint);

/// IMDSv2. Its failure to answer at all gives NotFound: this machine is no EC2 instance.
struct InstanceLimits {
  std::optional<absl::Duration> timeout;  // of a request
  std::optional<int> attempts;            // of each request
};
std::unique_ptr<CredentialSource> InstanceSource(EndpointUrl service, InstanceLimits limits = {});

}  // namespace millrace
