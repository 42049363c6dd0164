#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "net/http_client.h"

/// One table gives the meaning of the answers of S3 and of the failures of connections. Pure.

namespace millrace {

enum class S3Action {
  kFail,
  kRetry,
  kThrottle,  // retry; the store asks for fewer requests
  kRedirect,  // the bucket is in another region
  kRefresh,   // the temporary credentials have ended
  kFixClock,  // our clock differs from the store's
};

struct S3Verdict {
  absl::StatusCode code = absl::StatusCode::kUnavailable;  // of the final error
  S3Action action = S3Action::kFail;
  std::string_view remedy;  // "" or what the user can do
};

/// This is a row of the table. `status` 0 matches any, `code` "" matches any.
struct S3ErrorRule {
  int status;
  std::string_view code;
  S3Verdict verdict;
};

/// Returns the rules in order; the first that matches decides. They are exposed for the test that compares them with
/// AWS's documentation.
const std::vector<S3ErrorRule>& S3ErrorRules();

/// Returns the verdict on an answer with `http_status` and the <Code> of its body ("" without one).
S3Verdict ClassifyS3Error(int http_status, std::string_view code);

/// Returns the <Code> of the store's answer that made this error, such as "NoSuchBucket"; "" if none did. Programs
/// distinguish errors by it, not by the text.
std::string S3CodeOf(const absl::Status& status);
void SetS3Code(absl::Status* status, std::string_view code);
/// Returns the part of the message that says what the user can do; "" if there is none.
std::string S3RemedyOf(const absl::Status& status);
void SetS3Remedy(absl::Status* status, std::string_view remedy);

/// Returns the verdict on a call that ended without a whole response. It is not for kNone.
S3Verdict ClassifyTransportError(HttpErrorKind kind);

}  // namespace millrace
