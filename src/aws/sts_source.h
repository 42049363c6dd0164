#pragma once

#include <memory>
#include <string>

#include "aws/credential_source.h"
#include "aws/endpoint.h"

/// Gives roles: temporary credentials from AWS STS. Sources: AWS STS API Reference, "AssumeRole",
/// "AssumeRoleWithWebIdentity".

namespace millrace {

struct StsService {
  EndpointUrl url;
  std::string region;
};
/// Returns the region's own STS, with `fips` its FIPS endpoint, or `custom_url` (AWS_ENDPOINT_URL_STS).
absl::StatusOr<StsService> StsServiceOf(const std::string& region, const std::string& custom_url, bool fips);

struct AwsRole {
  std::string arn;
  std::string session_name = "millrace";
  std::string external_id;       // of AssumeRole only
  std::string duration_seconds;  // "": STS's default, an hour
};

/// Gives a role by the token of an OpenID provider (Kubernetes, CI) in a file, read each time. The request is unsigned.
std::unique_ptr<CredentialSource> WebIdentitySource(StsService sts, AwsRole role, std::string token_file);

/// Gives a role, by the credentials that `base` brings.
std::unique_ptr<CredentialSource> AssumeRoleSource(StsService sts, AwsRole role,
                                                   std::unique_ptr<CredentialSource> base);

}  // namespace millrace
