#include "devstore/s3_error.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "s3/xml.h"

namespace millrace {

namespace {

constexpr const char* kPayload = "millrace/devstore/s3-error";

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
  absl::Status status(StatusCodeOf(code.http_status), ToAbsl(message));
  // The payload is the code, its HTTP status, then names and values of details, joined by NUL (which no XML text can
  // contain).
  std::string payload = std::string(code.name) + '\0' + std::to_string(code.http_status);
  for (const auto& [name, value] : details) payload.append(1, '\0').append(name).append(1, '\0').append(value);
  status.SetPayload(kPayload, absl::Cord(payload));
  return status;
}

S3ErrorFacts DescribeS3Error(const absl::Status& status) {
  S3ErrorFacts facts;
  facts.message = ToStd(status.message());
  if (const auto payload = status.GetPayload(kPayload)) {
    const std::vector<std::string> items = absl::StrSplit(std::string(*payload), '\0');
    facts.name = items[0];
    absl::SimpleAtoi(items[1], &facts.http_status);
    for (size_t i = 2; i + 1 < items.size(); i += 2) facts.details.emplace_back(items[i], items[i + 1]);
  }
  return facts;
}

bool IsS3Error(const absl::Status& status, S3Code code) {
  return status.GetPayload(kPayload).has_value() && DescribeS3Error(status).name == code.name;
}

S3Code CodeOfHttpStatus(int status) {
  using namespace s3code;
  for (const S3Code code : {kBadRequest, kAccessDenied, kNoSuchKey, kMethodNotAllowed, kRequestTimeout,
                            kOperationAborted, kMissingContentLength, kPreconditionFailed, kInvalidRange,
                            kTooManyRequests, kNotImplemented, kBadGateway, kSlowDown, kGatewayTimeout}) {
    if (code.http_status == status) return code;
  }
  return kInternalError;
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
  return S3Error(s3code::kNoSuchBucket, "The specified bucket does not exist", {{"BucketName", std::string(bucket)}});
}

absl::Status NoSuchKey(std::string_view key) {
  return S3Error(s3code::kNoSuchKey, "The specified key does not exist.", {{"Key", std::string(key)}});
}

absl::Status NoSuchUpload(std::string_view id) {
  return S3Error(
      s3code::kNoSuchUpload,
      "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or "
      "completed.",
      {{"UploadId", std::string(id)}});
}

absl::Status PreconditionFailed(std::string_view condition) {
  return S3Error(s3code::kPreconditionFailed, "At least one of the pre-conditions you specified did not hold",
                 {{"Condition", std::string(condition)}});
}

}  // namespace millrace
