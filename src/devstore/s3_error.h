#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

/// Errors as S3 answers them. Inside devstore they travel as absl::Status with the S3 code attached; any other Status
/// is answered as 500 InternalError. Source of names and HTTP statuses: AWS, "Amazon S3 API Reference", "Error
/// responses".

namespace millrace {

enum class S3Code {
  kAccessDenied,
  kAuthorizationHeaderMalformed,
  kAuthorizationQueryParametersError,
  kBadDigest,
  kBadGateway,
  kBadRequest,
  kBucketAlreadyOwnedByYou,
  kBucketNotEmpty,
  kEntityTooLarge,
  kEntityTooSmall,
  kGatewayTimeout,
  kIllegalLocationConstraint,
  kIncompleteBody,
  kInternalError,
  kInvalidAccessKeyId,
  kInvalidArgument,
  kInvalidBucketName,
  kInvalidDigest,
  kInvalidPart,
  kInvalidPartNumber,
  kInvalidPartOrder,
  kInvalidRange,
  kInvalidRequest,
  kInvalidToken,
  kInvalidUri,
  kKeyTooLong,
  kMalformedXml,
  kMetadataTooLarge,
  kMethodNotAllowed,
  kMissingContentLength,
  kNoSuchBucket,
  kNoSuchKey,
  kNoSuchUpload,
  kNotImplemented,
  kNotModified,
  kOperationAborted,
  kPreconditionFailed,
  kRequestTimeTooSkewed,
  kRequestTimeout,
  kSignatureDoesNotMatch,
  kSlowDown,
  kTooManyRequests,
  kXAmzContentSha256Mismatch,
};

/// Further elements of the error document, e.g. {"Region", "us-east-1"}.
using S3ErrorDetails = std::vector<std::pair<std::string, std::string>>;

absl::Status S3Error(S3Code code, std::string_view message, const S3ErrorDetails& details = {});

struct S3ErrorFacts {
  S3Code code = S3Code::kInternalError;
  std::string_view name;  // "NoSuchKey"
  int http_status = 500;
  std::string message;
  S3ErrorDetails details;
};
S3ErrorFacts DescribeS3Error(const absl::Status& status);

bool IsS3Error(const absl::Status& status, S3Code code);

/// The code that S3 answers with an HTTP status, for injected faults: 503 -> SlowDown.
S3Code CodeOfHttpStatus(int status);

/// The <Error> document.
std::string S3ErrorXml(const S3ErrorFacts& error, std::string_view resource, std::string_view request_id);

// Those raised in several places.
absl::Status NoSuchBucket(std::string_view bucket);
absl::Status NoSuchKey(std::string_view key);
absl::Status NoSuchUpload(std::string_view id);
absl::Status PreconditionFailed(std::string_view condition);

}  // namespace millrace
