#pragma once

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "aws/sigv4.h"
#include "base/status.h"

/// These functions parse the documents in which credentials come: XML of STS, JSON of the others. Pure; fuzzed.
/// InvalidArgument says what is wrong with a document and never quotes from it, since any part of it may be a secret.

namespace millrace {

/// Holds credentials and when they end, by the clock of their issuer; InfiniteFuture for keys that stay.
struct ExpiringCredentials {
  Credentials keys;
  absl::Time expires = absl::InfiniteFuture();
};

/// Parses the answer to AssumeRole or AssumeRoleWithWebIdentity.
absl::StatusOr<ExpiringCredentials> ParseStsXml(std::string_view xml);

/// Parses the answer to CreateSession of S3.
absl::StatusOr<ExpiringCredentials> ParseCreateSessionXml(std::string_view xml);

struct StsError {
  std::string code;
  std::string message;
};
/// Parses <ErrorResponse>; fields are empty for anything else.
StsError ParseStsErrorXml(std::string_view xml);

/// Parses the answer of container endpoints and of the instance metadata service.
absl::StatusOr<ExpiringCredentials> ParseMetadataJson(std::string_view json);

/// Parses the output of a credential_process. Without an Expiration the keys stay.
absl::StatusOr<ExpiringCredentials> ParseProcessJson(std::string_view json);

/// Parses the answer to GetRoleCredentials of the SSO portal.
absl::StatusOr<ExpiringCredentials> ParseSsoRoleJson(std::string_view json);

struct SsoToken {
  std::string access_token;
  absl::Time expires;
  // These renew it; they are empty if the login cannot be renewed.
  std::string refresh_token;
  std::string client_id;
  std::string client_secret;
  absl::Time registration_expires = absl::InfinitePast();  // of the client; in the past when anything is lacking
};
/// Parses a file of ~/.aws/sso/cache.
absl::StatusOr<SsoToken> ParseSsoTokenJson(std::string_view json);

/// Returns the request CreateToken that renews it.
std::string WriteSsoRenewalJson(const SsoToken& token);

struct RenewedSsoToken {
  std::string access_token;
  std::string file;  // the cached file with it
};
/// Parses the answer to CreateToken at `now`, put into the cached `file`, of which everything else stays.
absl::StatusOr<RenewedSsoToken> RenewSsoTokenJson(std::string_view file, std::string_view answer, absl::Time now);

/// Returns OK for a key or token that can be in a header: printable ASCII without spaces, not too long. The message
/// calls it `name`.
absl::Status CheckSecret(std::string_view value, std::string_view name);

/// Does the same for a token that may have spaces within, such as "Bearer x".
absl::Status CheckToken(std::string_view value, std::string_view name);

}  // namespace millrace
