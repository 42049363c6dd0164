#pragma once

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "aws/credential_documents.h"
#include "devstore/auth.h"
#include "devstore/s3_request.h"

/// Directory buckets (S3 Express One Zone): buckets that are called so (s3/bucket_name.h) take requests that are signed
/// by a session, and refuse what AWS refuses. Pure.

namespace millrace {

/// Returns the keys and the token of a new session of the bucket. They follow from the server's secret key, so that
/// nothing need be kept.
ExpiringCredentials MakeDirectorySession(std::string_view bucket, std::string_view secret_key, absl::Time now);

/// Returns the settings that check the signature of a request about a directory bucket. Returns AccessDenied if the
/// operation needs a session and the request names none; InvalidToken or ExpiredToken for its token.
absl::StatusOr<AuthSettings> DirectoryAuth(const S3Request& request, const AuthSettings& settings, absl::Time now);

/// Returns InvalidRequest or NotImplemented for requests that directory buckets do not take.
absl::Status CheckDirectoryRequest(const S3Request& request);

}  // namespace millrace
