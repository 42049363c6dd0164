#include "devstore/s3_error.h"

#include <array>
#include <charconv>

#include "absl/strings/cord.h"
#include "s3/xml.h"

namespace millrace {

namespace {

constexpr const char* kPayload = "millrace/devstore/s3-error";

struct CodeRow {
  S3Code code;
  std::string_view name;
  int http_status;
};

constexpr std::array<CodeRow, 43> kCodes = {{
    {S3Code::kAccessDenied, "AccessDenied", 403},
    {S3Code::kAuthorizationHeaderMalformed, "AuthorizationHeaderMalformed", 400},
    {S3Code::kAuthorizationQueryParametersError, "AuthorizationQueryParametersError", 400},
    {S3Code::kBadDigest, "BadDigest", 400},
    {S3Code::kBadGateway, "BadGateway", 502},
    {S3Code::kBadRequest, "BadRequest", 400},
    {S3Code::kBucketAlreadyOwnedByYou, "BucketAlreadyOwnedByYou", 409},
    {S3Code::kBucketNotEmpty, "BucketNotEmpty", 409},
    {S3Code::kEntityTooLarge, "EntityTooLarge", 400},
    {S3Code::kEntityTooSmall, "EntityTooSmall", 400},
    {S3Code::kGatewayTimeout, "GatewayTimeout", 504},
    {S3Code::kIllegalLocationConstraint, "IllegalLocationConstraintException", 400},
    {S3Code::kIncompleteBody, "IncompleteBody", 400},
    {S3Code::kInternalError, "InternalError", 500},
    {S3Code::kInvalidAccessKeyId, "InvalidAccessKeyId", 403},
    {S3Code::kInvalidArgument, "InvalidArgument", 400},
    {S3Code::kInvalidBucketName, "InvalidBucketName", 400},
    {S3Code::kInvalidDigest, "InvalidDigest", 400},
    {S3Code::kInvalidPart, "InvalidPart", 400},
    {S3Code::kInvalidPartNumber, "InvalidPartNumber", 416},
    {S3Code::kInvalidPartOrder, "InvalidPartOrder", 400},
    {S3Code::kInvalidRange, "InvalidRange", 416},
    {S3Code::kInvalidRequest, "InvalidRequest", 400},
    {S3Code::kInvalidToken, "InvalidToken", 400},
    {S3Code::kInvalidUri, "InvalidURI", 400},
    {S3Code::kKeyTooLong, "KeyTooLongError", 400},
    {S3Code::kMalformedXml, "MalformedXML", 400},
    {S3Code::kMetadataTooLarge, "MetadataTooLarge", 400},
    {S3Code::kMethodNotAllowed, "MethodNotAllowed", 405},
    {S3Code::kMissingContentLength, "MissingContentLength", 411},
    {S3Code::kNoSuchBucket, "NoSuchBucket", 404},
    {S3Code::kNoSuchKey, "NoSuchKey", 404},
    {S3Code::kNoSuchUpload, "NoSuchUpload", 404},
    {S3Code::kNotImplemented, "NotImplemented", 501},
    {S3Code::kNotModified, "NotModified", 304},
    {S3Code::kOperationAborted, "OperationAborted", 409},
    {S3Code::kPreconditionFailed, "PreconditionFailed", 412},
    {S3Code::kRequestTimeTooSkewed, "RequestTimeTooSkewed", 403},
    {S3Code::kRequestTimeout, "RequestTimeout", 408},
    {S3Code::kSignatureDoesNotMatch, "SignatureDoesNotMatch", 403},
    {S3Code::kSlowDown, "SlowDown", 503},
    {S3Code::kTooManyRequests, "TooManyRequests", 429},
    {S3Code::kXAmzContentSha256Mismatch, "XAmzContentSHA256Mismatch", 400},
}};

constexpr bool TableIsInOrder() {
  for (size_t i = 0; i < kCodes.size(); ++i) {
    if (static_cast<size_t>(kCodes[i].code) != i) return false;
  }
  return static_cast<size_t>(S3Code::kXAmzContentSha256Mismatch) + 1 == kCodes.size();
}
static_assert(TableIsInOrder(), "one row for each code, in the order of the enumeration");

const CodeRow& Row(S3Code code) {
  return kCodes[static_cast<size_t>(code)];
}

absl::StatusCode StatusCodeOf(int http_status) {
  switch (http_status) {
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 304:
    case 409:
    case 412:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return http_status >= 500 ? absl::StatusCode::kUnavailable : absl::StatusCode::kInvalidArgument;
  }
}

}  // namespace

absl::Status S3Error(S3Code code, std::string_view message, const S3ErrorDetails& details) {
  absl::Status status(StatusCodeOf(Row(code).http_status), ToAbsl(message));
  // The code, then names and values of details, each closed by a NUL (which no XML text can contain).
  std::string payload = std::to_string(static_cast<int>(code)) + '\0';
  for (const auto& [name, value] : details) payload.append(name).append(1, '\0').append(value).append(1, '\0');
  status.SetPayload(kPayload, absl::Cord(payload));
  return status;
}

S3ErrorFacts DescribeS3Error(const absl::Status& status) {
  S3ErrorFacts facts;
  facts.message = ToStd(status.message());
  if (const auto payload = status.GetPayload(kPayload)) {
    const std::string text(*payload);
    std::vector<std::string> items;
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\0', at);
      items.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    int code = 0;
    std::from_chars(items[0].data(), items[0].data() + items[0].size(), code);
    facts.code = static_cast<S3Code>(code);
    for (size_t i = 1; i + 1 < items.size(); i += 2) facts.details.emplace_back(items[i], items[i + 1]);
  }
  facts.name = Row(facts.code).name;
  facts.http_status = Row(facts.code).http_status;
  return facts;
}

bool IsS3Error(const absl::Status& status, S3Code code) {
  return !status.ok() && status.GetPayload(kPayload).has_value() && DescribeS3Error(status).code == code;
}

S3Code CodeOfHttpStatus(int status) {
  switch (status) {
    case 400:
      return S3Code::kBadRequest;
    case 403:
      return S3Code::kAccessDenied;
    case 404:
      return S3Code::kNoSuchKey;
    case 405:
      return S3Code::kMethodNotAllowed;
    case 408:
      return S3Code::kRequestTimeout;
    case 409:
      return S3Code::kOperationAborted;
    case 411:
      return S3Code::kMissingContentLength;
    case 412:
      return S3Code::kPreconditionFailed;
    case 416:
      return S3Code::kInvalidRange;
    case 429:
      return S3Code::kTooManyRequests;
    case 501:
      return S3Code::kNotImplemented;
    case 502:
      return S3Code::kBadGateway;
    case 503:
      return S3Code::kSlowDown;
    case 504:
      return S3Code::kGatewayTimeout;
    default:
      return S3Code::kInternalError;
  }
}

std::string S3ErrorXml(const S3ErrorFacts& error, std::string_view resource, std::string_view request_id) {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>";
  const auto add = [&out](std::string_view name, std::string_view value) {
    out.append("<").append(name).append(">").append(XmlEscape(value)).append("</").append(name).append(">");
  };
  add("Code", error.name);
  add("Message", error.message);
  for (const auto& [name, value] : error.details) add(name, value);
  add("Resource", resource);
  add("RequestId", request_id);
  return out.append("</Error>");
}

absl::Status NoSuchBucket(std::string_view bucket) {
  return S3Error(S3Code::kNoSuchBucket, "The specified bucket does not exist", {{"BucketName", std::string(bucket)}});
}

absl::Status NoSuchKey(std::string_view key) {
  return S3Error(S3Code::kNoSuchKey, "The specified key does not exist.", {{"Key", std::string(key)}});
}

absl::Status NoSuchUpload(std::string_view id) {
  return S3Error(
      S3Code::kNoSuchUpload,
      "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or "
      "completed.",
      {{"UploadId", std::string(id)}});
}

absl::Status PreconditionFailed(std::string_view condition) {
  return S3Error(S3Code::kPreconditionFailed, "At least one of the pre-conditions you specified did not hold",
                 {{"Condition", std::string(condition)}});
}

}  // namespace millrace
