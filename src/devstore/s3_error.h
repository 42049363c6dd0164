#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

/// These are errors as S3 sends them. Inside devstore an error is an absl::Status with the S3 code attached; any other
/// Status is sent as 500 InternalError. The source of names and HTTP statuses is AWS, "Amazon S3 API Reference", "Error
/// responses".

namespace millrace {

struct S3Code {
  std::string_view name;
  int http_status;
  friend bool operator==(const S3Code&, const S3Code&) = default;
};

namespace s3code {
inline constexpr S3Code kAccessDenied{"AccessDenied", 403};
inline constexpr S3Code kAuthorizationHeaderMalformed{"AuthorizationHeaderMalformed", 400};
inline constexpr S3Code kAuthorizationQueryParametersError{"AuthorizationQueryParametersError", 400};
inline constexpr S3Code kBadDigest{"BadDigest", 400};
inline constexpr S3Code kBadGateway{"BadGateway", 502};
inline constexpr S3Code kBadRequest{"BadRequest", 400};
inline constexpr S3Code kBucketAlreadyOwnedByYou{"BucketAlreadyOwnedByYou", 409};
inline constexpr S3Code kBucketNotEmpty{"BucketNotEmpty", 409};
inline constexpr S3Code kEntityTooLarge{"EntityTooLarge", 400};
inline constexpr S3Code kEntityTooSmall{"EntityTooSmall", 400};
inline constexpr S3Code kExpiredToken{"ExpiredToken", 400};
inline constexpr S3Code kGatewayTimeout{"GatewayTimeout", 504};
inline constexpr S3Code kIllegalLocationConstraint{"IllegalLocationConstraintException", 400};
inline constexpr S3Code kIncompleteBody{"IncompleteBody", 400};
inline constexpr S3Code kInternalError{"InternalError", 500};
inline constexpr S3Code kInvalidAccessKeyId{"InvalidAccessKeyId", 403};
inline constexpr S3Code kInvalidArgument{"InvalidArgument", 400};
inline constexpr S3Code kInvalidBucketName{"InvalidBucketName", 400};
inline constexpr S3Code kInvalidDigest{"InvalidDigest", 400};
inline constexpr S3Code kInvalidPart{"InvalidPart", 400};
inline constexpr S3Code kInvalidPartNumber{"InvalidPartNumber", 416};
inline constexpr S3Code kInvalidPartOrder{"InvalidPartOrder", 400};
inline constexpr S3Code kInvalidRange{"InvalidRange", 416};
inline constexpr S3Code kInvalidRequest{"InvalidRequest", 400};
inline constexpr S3Code kInvalidToken{"InvalidToken", 400};
inline constexpr S3Code kInvalidUri{"InvalidURI", 400};
inline constexpr S3Code kKeyTooLong{"KeyTooLongError", 400};
inline constexpr S3Code kMalformedXml{"MalformedXML", 400};
inline constexpr S3Code kMetadataTooLarge{"MetadataTooLarge", 400};
inline constexpr S3Code kMethodNotAllowed{"MethodNotAllowed", 405};
inline constexpr S3Code kMissingContentLength{"MissingContentLength", 411};
inline constexpr S3Code kNoSuchBucket{"NoSuchBucket", 404};
inline constexpr S3Code kNoSuchKey{"NoSuchKey", 404};
inline constexpr S3Code kNoSuchUpload{"NoSuchUpload", 404};
inline constexpr S3Code kNotImplemented{"NotImplemented", 501};
inline constexpr S3Code kNotModified{"NotModified", 304};
inline constexpr S3Code kOperationAborted{"OperationAborted", 409};
inline constexpr S3Code kPreconditionFailed{"PreconditionFailed", 412};
inline constexpr S3Code kRequestTimeTooSkewed{"RequestTimeTooSkewed", 403};
inline constexpr S3Code kRequestTimeout{"RequestTimeout", 408};
inline constexpr S3Code kSignatureDoesNotMatch{"SignatureDoesNotMatch", 403};
inline constexpr S3Code kSlowDown{"SlowDown", 503};
inline constexpr S3Code kTooManyRequests{"TooManyRequests", 429};
inline constexpr S3Code kXAmzContentSha256Mismatch{"XAmzContentSHA256Mismatch", 400};
}  // namespace s3code

/// These are further elements of the error document, e.g. {"Region", "us-east-1"}.
using S3ErrorDetails = std::vector<std::pair<std::string, std::string>>;

absl::Status S3Error(S3Code code, std::string_view message, const S3ErrorDetails& details = {});

struct S3ErrorFacts {
  std::string name = std::string(s3code::kInternalError.name);  // "NoSuchKey"
  int http_status = s3code::kInternalError.http_status;
  std::string message;
  S3ErrorDetails details;
};
S3ErrorFacts DescribeS3Error(const absl::Status& status);

bool IsS3Error(const absl::Status& status, S3Code code);

/// Returns the code that S3 sends with an HTTP status, for injected faults: 503 -> SlowDown.
S3Code CodeOfHttpStatus(int status);

/// Returns the <Error> document.
std::string S3ErrorXml(const S3ErrorFacts& error, std::string_view resource, std::string_view request_id);

// These errors are raised in several places.
absl::Status NoSuchBucket(std::string_view bucket);
absl::Status NoSuchKey(std::string_view key);
absl::Status NoSuchUpload(std::string_view id);
absl::Status PreconditionFailed(std::string_view condition);

}  // namespace millrace
