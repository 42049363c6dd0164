#include "s3/error.h"

#include "base/status.h"

namespace millrace {

namespace {

using Code = absl::StatusCode;

constexpr char kCodePayload[] = "millrace/s3-code";
constexpr char kRemedyPayload[] = "millrace/s3-remedy";

constexpr std::string_view kCheckKeys = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile in use";
constexpr std::string_view kUnknownKey =
    "the store does not know this access key: check AWS_ACCESS_KEY_ID, the profile in use, AWS_SESSION_TOKEN (for keys "
    "ASIA...), and that AWS_ENDPOINT_URL is its store";
constexpr std::string_view kWrongSignature =
    "the secret key does not fit the access key: check AWS_SECRET_ACCESS_KEY (AWS_ACCESS_KEY_ID, the profile in use), "
    "AWS_REGION, and that no proxy on the way changes requests";
constexpr std::string_view kCheckKmsKey =
    "the key of KMS cannot be used: check that it exists in the bucket's region and is enabled, and "
    "MILLRACE_S3_SSE_KMS_KEY_ID";
constexpr std::string_view kRenewKeys = "renew the temporary credentials (AWS_SESSION_TOKEN, or the profile in use)";
constexpr std::string_view kNoPermission = "these credentials have no permission for it";
constexpr std::string_view kCheckRegion = "check AWS_REGION and AWS_ENDPOINT_URL";
constexpr std::string_view kCheckClock = "set this machine's clock (NTP)";
constexpr std::string_view kNotAllowed =
    "the server does not take this kind of request: check AWS_ENDPOINT_URL, which may be that of a web site or of "
    "another service";
constexpr std::string_view kFreeSpace = "free space or raise the quota";
constexpr std::string_view kTooLargeBody =
    "the store, or a proxy before it, takes no body of this size: raise its limit (client_max_body_size of nginx)";
constexpr std::string_view kNoBucket = "the bucket does not exist";
constexpr std::string_view kSlowDown = "the store is overloaded: lower the number of connections or try later";

}  // namespace

// Source: AWS, "Amazon S3 API Reference", "Error responses"; codes of Ceph RADOS Gateway from its documentation.
const std::vector<S3ErrorRule>& S3ErrorRules() {
  static const std::vector<S3ErrorRule> rules = {
      {0, "NoSuchKey", {Code::kNotFound, S3Action::kFail, "the object does not exist"}},
      {0, "NoSuchBucket", {Code::kNotFound, S3Action::kFail, kNoBucket}},
      {0, "NoSuchUpload", {Code::kNotFound, S3Action::kFail, "the upload was aborted or completed"}},
      {0, "AccessDenied", {Code::kPermissionDenied, S3Action::kFail, kNoPermission}},
      {0, "AllAccessDisabled", {Code::kPermissionDenied, S3Action::kFail, kNoPermission}},
      {0, "AccountProblem", {Code::kPermissionDenied, S3Action::kFail, kNoPermission}},
      {0, "InvalidAccessKeyId", {Code::kUnauthenticated, S3Action::kFail, kUnknownKey}},
      {0, "SignatureDoesNotMatch", {Code::kUnauthenticated, S3Action::kFail, kWrongSignature}},
      {0, "InvalidSecurity", {Code::kUnauthenticated, S3Action::kFail, kCheckKeys}},
      {0, "ExpiredToken", {Code::kUnauthenticated, S3Action::kRefresh, kRenewKeys}},
      {0, "ExpiredTokenException", {Code::kUnauthenticated, S3Action::kRefresh, kRenewKeys}},
      {0, "InvalidToken", {Code::kUnauthenticated, S3Action::kRefresh, kRenewKeys}},
      {0, "TokenRefreshRequired", {Code::kUnauthenticated, S3Action::kRefresh, kRenewKeys}},
      {0, "RequestTimeTooSkewed", {Code::kUnauthenticated, S3Action::kFixClock, kCheckClock}},
      {0, "AuthorizationHeaderMalformed", {Code::kUnauthenticated, S3Action::kRedirect, kCheckRegion}},
      {0, "PermanentRedirect", {Code::kInvalidArgument, S3Action::kRedirect, kCheckRegion}},
      {0, "TemporaryRedirect", {Code::kInvalidArgument, S3Action::kRedirect, kCheckRegion}},
      {0, "IllegalLocationConstraintException", {Code::kInvalidArgument, S3Action::kRedirect, kCheckRegion}},
      {0, "PreconditionFailed", {Code::kFailedPrecondition, S3Action::kFail, ""}},
      {0, "InvalidRange", {Code::kOutOfRange, S3Action::kFail, ""}},
      {0,
       "InvalidObjectState",
       {Code::kFailedPrecondition, S3Action::kFail, "the object is archived: restore it first"}},
      {0, "BucketAlreadyExists", {Code::kAlreadyExists, S3Action::kFail, ""}},
      {0, "BucketAlreadyOwnedByYou", {Code::kAlreadyExists, S3Action::kFail, ""}},
      {0, "ConditionalRequestConflict", {Code::kUnavailable, S3Action::kRetry, ""}},
      {0, "OperationAborted", {Code::kUnavailable, S3Action::kRetry, ""}},
      {0, "QuotaExceeded", {Code::kResourceExhausted, S3Action::kFail, kFreeSpace}},
      {0, "XMinioAdminBucketQuotaExceeded", {Code::kResourceExhausted, S3Action::kFail, kFreeSpace}},
      {0, "EntityTooLarge", {Code::kInvalidArgument, S3Action::kFail, kTooLargeBody}},
      {0, "BadDigest", {Code::kDataLoss, S3Action::kRetry, ""}},
      {0, "XAmzContentSHA256Mismatch", {Code::kDataLoss, S3Action::kRetry, ""}},
      {0, "IncompleteBody", {Code::kUnavailable, S3Action::kRetry, ""}},
      {0, "RequestTimeout", {Code::kUnavailable, S3Action::kRetry, ""}},
      {0, "InternalError", {Code::kUnavailable, S3Action::kRetry, ""}},
      {0, "SlowDown", {Code::kUnavailable, S3Action::kThrottle, kSlowDown}},
      {0, "ServiceUnavailable", {Code::kUnavailable, S3Action::kThrottle, kSlowDown}},
      {0, "RequestLimitExceeded", {Code::kUnavailable, S3Action::kThrottle, kSlowDown}},
      {0, "BandwidthLimitExceeded", {Code::kUnavailable, S3Action::kThrottle, kSlowDown}},
      {0, "Throttling", {Code::kUnavailable, S3Action::kThrottle, kSlowDown}},
      {0, "ThrottlingException", {Code::kUnavailable, S3Action::kThrottle, kSlowDown}},
      {0, "TooManyRequests", {Code::kUnavailable, S3Action::kThrottle, kSlowDown}},
      {0, "KMS.DisabledException", {Code::kFailedPrecondition, S3Action::kFail, kCheckKmsKey}},
      {0, "KMS.NotFoundException", {Code::kFailedPrecondition, S3Action::kFail, kCheckKmsKey}},
      {0, "KMS.KMSInvalidStateException", {Code::kFailedPrecondition, S3Action::kFail, kCheckKmsKey}},
      {0, "KMS.InvalidStateException", {Code::kFailedPrecondition, S3Action::kFail, kCheckKmsKey}},
      {0, "KMS.InvalidKeyUsageException", {Code::kFailedPrecondition, S3Action::kFail, kCheckKmsKey}},
      {0, "NotImplemented", {Code::kInvalidArgument, S3Action::kFail, "the store does not know this request"}},
      // These answers have no code that says more: the status alone decides.
      {301, "", {Code::kInvalidArgument, S3Action::kRedirect, kCheckRegion}},
      {302, "", {Code::kInvalidArgument, S3Action::kRedirect, kCheckRegion}},
      {307, "", {Code::kInvalidArgument, S3Action::kRedirect, kCheckRegion}},
      {308, "", {Code::kInvalidArgument, S3Action::kRedirect, kCheckRegion}},
      {401, "", {Code::kUnauthenticated, S3Action::kFail, kCheckKeys}},
      {403, "", {Code::kPermissionDenied, S3Action::kFail, kNoPermission}},
      {404, "", {Code::kNotFound, S3Action::kFail, "the object or its bucket does not exist"}},
      {405, "", {Code::kInvalidArgument, S3Action::kFail, kNotAllowed}},
      {408, "", {Code::kUnavailable, S3Action::kRetry, ""}},
      {409, "", {Code::kAlreadyExists, S3Action::kFail, ""}},
      {412, "", {Code::kFailedPrecondition, S3Action::kFail, ""}},
      {413, "", {Code::kInvalidArgument, S3Action::kFail, kTooLargeBody}},
      {416, "", {Code::kOutOfRange, S3Action::kFail, ""}},
      {429, "", {Code::kUnavailable, S3Action::kThrottle, kSlowDown}},
      {500, "", {Code::kUnavailable, S3Action::kRetry, ""}},
      {501, "", {Code::kInvalidArgument, S3Action::kFail, "the store does not know this request"}},
      {502, "", {Code::kUnavailable, S3Action::kRetry, ""}},
      {503, "", {Code::kUnavailable, S3Action::kThrottle, kSlowDown}},
      {504, "", {Code::kUnavailable, S3Action::kRetry, ""}},
      {507, "", {Code::kResourceExhausted, S3Action::kFail, kFreeSpace}},
  };
  return rules;
}

S3Verdict ClassifyS3Error(int http_status, std::string_view code) {
  for (const S3ErrorRule& rule : S3ErrorRules()) {
    if ((rule.status == 0 || rule.status == http_status) && (rule.code.empty() || rule.code == code))
      return rule.verdict;
  }
  if (http_status >= 400 && http_status < 500) return {Code::kInvalidArgument, S3Action::kFail, ""};
  // This is for unknown 5xx, an unknown error inside a 200, and statuses that S3 never sends.
  return {Code::kUnavailable, S3Action::kRetry, ""};
}

S3Verdict ClassifyTransportError(HttpErrorKind kind) {
  switch (kind) {
    case HttpErrorKind::kConnect:
      return {Code::kUnavailable, S3Action::kRetry, "check AWS_ENDPOINT_URL, AWS_REGION and the network"};
    case HttpErrorKind::kTls:
      return {Code::kUnavailable, S3Action::kFail,
              "use http:// if the server has no TLS; for a private authority set AWS_CA_BUNDLE to its PEM file; if no "
              "server "
              "is trusted, install the package ca-certificates or set SSL_CERT_FILE"};
    case HttpErrorKind::kProxy:
      return {Code::kUnavailable, S3Action::kFail,
              "check HTTPS_PROXY and HTTP_PROXY, and name the store in NO_PROXY if it is reached without a proxy"};
    case HttpErrorKind::kStale:
    case HttpErrorKind::kReset:
    case HttpErrorKind::kClosedEarly:
    case HttpErrorKind::kTimeout:
    case HttpErrorKind::kMalformed:
    case HttpErrorKind::kRefused:
      return {Code::kUnavailable, S3Action::kRetry, ""};
    case HttpErrorKind::kTooLarge:
      return {Code::kResourceExhausted, S3Action::kFail, ""};
    case HttpErrorKind::kCancelled:
      return {Code::kCancelled, S3Action::kFail, ""};
    case HttpErrorKind::kNone:
      break;
  }
  return {Code::kInternal, S3Action::kFail, ""};
}

std::string S3CodeOf(const absl::Status& status) {
  return std::string(status.GetPayload(kCodePayload).value_or(absl::Cord()));
}

void SetS3Code(absl::Status* status, std::string_view code) {
  if (!code.empty()) status->SetPayload(kCodePayload, absl::Cord(ToAbsl(code)));
}

std::string S3RemedyOf(const absl::Status& status) {
  return std::string(status.GetPayload(kRemedyPayload).value_or(absl::Cord()));
}

void SetS3Remedy(absl::Status* status, std::string_view remedy) {
  if (!remedy.empty()) status->SetPayload(kRemedyPayload, absl::Cord(ToAbsl(remedy)));
}

}  // namespace millrace
