#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "aws/sigv4.h"
#include "base/status.h"
#include "devstore/s3_request.h"

namespace millrace {

struct AuthSettings {
  Credentials credentials;
  std::string region;
  bool anonymous = false;  // signatures are not checked
  std::string service = "s3";
  /// This is the SHA-256 of the body, for a service whose clients need not say it.
  std::optional<std::string> body_hash;
};

/// Holds the claims of a signed request about its body.
struct AuthResult {
  std::string payload_hash = std::string(kUnsignedPayload);  // x-amz-content-sha256: a hash, or a mode
  // These serve for the signatures of chunks:
  bool is_signed = false;
  absl::Time time;
  SigV4Scope scope;
  std::string signature;
};

/// Checks a request's Signature Version 4, in the Authorization header or in the query (presigned). Pure. The errors of
/// S3: AccessDenied, InvalidAccessKeyId, SignatureDoesNotMatch, RequestTimeTooSkewed, AuthorizationHeaderMalformed ...
absl::StatusOr<AuthResult> Authenticate(const S3Request& request, const AuthSettings& settings, absl::Time now);

}  // namespace millrace
