#pragma once

#include <memory>
#include <string>

#include "aws/credential_source.h"
#include "aws/endpoint.h"

namespace millrace {

struct SsoLogin {
  std::string profile;
  std::string cache_folder;  // ~/.aws/sso/cache
  std::string session;       // name of the sso-session; else the start URL names the cache's file
  std::string start_url;
  std::string account_id;
  std::string role_name;
  EndpointUrl portal;
  EndpointUrl oidc;
};

/// `aws sso login` has left a token; the portal gives credentials for it. A token that has expired is renewed once, if
/// the login allows it, and kept in its file, as the AWS CLI does. Sources: AWS IAM Identity Center OIDC API Reference,
/// "CreateToken"; Portal API Reference, "GetRoleCredentials".
std::unique_ptr<CredentialSource> SsoSource(SsoLogin login);

}  // namespace millrace
