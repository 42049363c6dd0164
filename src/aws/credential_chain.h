#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "aws/credential_source.h"
#include "aws/endpoint.h"
#include "aws/settings.h"

namespace millrace {

inline constexpr std::string_view kNoCredentials =
    "no AWS credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a profile of "
    "~/.aws/config or ~/.aws/credentials; for public data set MILLRACE_S3_ANONYMOUS=1";

/// Returns AWS_ACCESS_KEY_ID and its companions; nullopt when they are not set, InvalidArgument when only one is.
absl::StatusOr<std::optional<Credentials>> EnvironmentKeys(const AwsSettings& settings);

/// Returns the place of the metadata service of an EC2 instance; nullopt if AWS_EC2_METADATA_DISABLED says not to ask
/// it. InvalidArgument if AWS_EC2_METADATA_SERVICE_ENDPOINT is no URL. Pure.
absl::StatusOr<std::optional<EndpointUrl>> InstanceMetadataService(const AwsSettings& settings);

/// Credentials come from the first of these that is configured, in the order of the AWS SDKs:
///   1. AWS_ACCESS_KEY_ID
///   2. role_arn of the profile with a source
///   3. AWS_WEB_IDENTITY_TOKEN_FILE
///   4. the profile: its web identity, SSO with an account or a role, static keys, credential_process, other SSO
///   5. AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, _FULL_URI
///   6. the instance metadata service
/// If it then fails, the others are not tried, so that no program runs with the wrong identity by accident. Returns
/// InvalidArgument for settings that contradict each other; Unauthenticated when nothing is left to try. Pure.
absl::StatusOr<std::unique_ptr<CredentialSource>> FindCredentialSource(const AwsSettings& settings);

}  // namespace millrace
