#include "devstore/s3_request.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "absl/strings/ascii.h"
#include "devstore/s3_error.h"
#include "s3/sigv4.h"

namespace millrace {

namespace {

constexpr size_t kMaxKeyBytes = 1024;

/// Sub-resources of S3 that devstore does not have. Ignoring them would answer something else than was asked.
constexpr std::array<std::string_view, 32> kForeignSubresources = {"accelerate",
                                                                   "acl",
                                                                   "analytics",
                                                                   "attributes",
                                                                   "cors",
                                                                   "encryption",
                                                                   "intelligent-tiering",
                                                                   "inventory",
                                                                   "legal-hold",
                                                                   "lifecycle",
                                                                   "logging",
                                                                   "metadataTable",
                                                                   "metrics",
                                                                   "notification",
                                                                   "object-lock",
                                                                   "ownershipControls",
                                                                   "policy",
                                                                   "policyStatus",
                                                                   "publicAccessBlock",
                                                                   "renameObject",
                                                                   "replication",
                                                                   "requestPayment",
                                                                   "restore",
                                                                   "retention",
                                                                   "select",
                                                                   "session",
                                                                   "tagging",
                                                                   "torrent",
                                                                   "versioning",
                                                                   "versions",
                                                                   "website",
                                                                   "annotation"};

/// The bucket of "bucket.localhost:9000"; empty for other hosts.
std::string_view VirtualBucket(std::string_view host) {
  host = host.substr(0, host.rfind(':'));
  constexpr std::string_view kSuffix = ".localhost";
  return host.ends_with(kSuffix) ? host.substr(0, host.size() - kSuffix.size()) : std::string_view();
}

absl::Status InvalidUri() {
  return S3Error(S3Code::kInvalidUri, "Couldn't parse the specified URI.");
}

absl::StatusOr<S3Operation> ClassifyBucketRequest(const S3Request& request) {
  const std::string& method = request.head.method;
  if (method == "GET") {
    if (request.Has("location")) return S3Operation::kGetBucketLocation;
    if (request.Has("uploads")) return S3Operation::kListUploads;
    const std::string type = request.ParameterOr("list-type");
    if (!type.empty() && type != "2") {
      return S3Error(S3Code::kInvalidArgument, "Invalid List Type",
                     {{"ArgumentName", "list-type"}, {"ArgumentValue", type}});
    }
    return type.empty() ? S3Operation::kListObjects : S3Operation::kListObjectsV2;
  }
  if (method == "HEAD") return S3Operation::kHeadBucket;
  if (method == "PUT") return S3Operation::kCreateBucket;
  if (method == "DELETE") return S3Operation::kDeleteBucket;
  if (method == "POST" && request.Has("delete")) return S3Operation::kDeleteObjects;
  return S3Error(S3Code::kMethodNotAllowed, "The specified method is not allowed against this resource.",
                 {{"Method", method}, {"ResourceType", "BUCKET"}});
}

absl::StatusOr<S3Operation> ClassifyObjectRequest(const S3Request& request) {
  const std::string& method = request.head.method;
  const bool of_upload = request.Has("uploadId");
  if (method == "GET") return of_upload ? S3Operation::kListParts : S3Operation::kGetObject;
  if (method == "HEAD") return S3Operation::kHeadObject;
  if (method == "PUT") {
    const bool copy = request.Header("x-amz-copy-source").has_value();
    if (of_upload || request.Has("partNumber")) return copy ? S3Operation::kUploadPartCopy : S3Operation::kUploadPart;
    return copy ? S3Operation::kCopyObject : S3Operation::kPutObject;
  }
  if (method == "DELETE") return of_upload ? S3Operation::kAbortUpload : S3Operation::kDeleteObject;
  if (method == "POST" && request.Has("uploads")) return S3Operation::kCreateUpload;
  if (method == "POST" && of_upload) return S3Operation::kCompleteUpload;
  return S3Error(S3Code::kMethodNotAllowed, "The specified method is not allowed against this resource.",
                 {{"Method", method}, {"ResourceType", "OBJECT"}});
}

}  // namespace

bool MayNameBucket(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name[0] != '.' && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

std::string_view OperationName(S3Operation operation) {
  switch (operation) {
    case S3Operation::kListBuckets:
      return "ListBuckets";
    case S3Operation::kCreateBucket:
      return "CreateBucket";
    case S3Operation::kDeleteBucket:
      return "DeleteBucket";
    case S3Operation::kHeadBucket:
      return "HeadBucket";
    case S3Operation::kGetBucketLocation:
      return "GetBucketLocation";
    case S3Operation::kListObjects:
      return "ListObjects";
    case S3Operation::kListObjectsV2:
      return "ListObjectsV2";
    case S3Operation::kListUploads:
      return "ListMultipartUploads";
    case S3Operation::kDeleteObjects:
      return "DeleteObjects";
    case S3Operation::kGetObject:
      return "GetObject";
    case S3Operation::kHeadObject:
      return "HeadObject";
    case S3Operation::kPutObject:
      return "PutObject";
    case S3Operation::kCopyObject:
      return "CopyObject";
    case S3Operation::kDeleteObject:
      return "DeleteObject";
    case S3Operation::kCreateUpload:
      return "CreateMultipartUpload";
    case S3Operation::kUploadPart:
      return "UploadPart";
    case S3Operation::kUploadPartCopy:
      return "UploadPartCopy";
    case S3Operation::kCompleteUpload:
      return "CompleteMultipartUpload";
    case S3Operation::kAbortUpload:
      return "AbortMultipartUpload";
    case S3Operation::kListParts:
      return "ListParts";
  }
  return "";
}

std::optional<std::string_view> S3Request::Parameter(std::string_view name) const {
  for (const auto& [field, value] : query) {
    if (field == name) return value;
  }
  return std::nullopt;
}

std::string_view S3Request::path() const {
  return std::string_view(head.target).substr(0, head.target.find('?'));
}

std::string S3Request::Subject() const {
  if (bucket.empty()) return "";
  return bucket + "/" + (key.empty() ? ParameterOr("prefix") : key);
}

absl::StatusOr<S3Request> ParseS3Request(HttpRequestHead head) {
  S3Request request;
  request.head = std::move(head);
  std::string_view path = request.path();
  if (path.empty() || path[0] != '/') return InvalidUri();
  path.remove_prefix(1);
  const size_t question = request.head.target.find('?');
  if (question != std::string::npos) {
    auto query = ParseQuery(std::string_view(request.head.target).substr(question + 1));
    if (!query) return InvalidUri();
    request.query = *std::move(query);
  }
  request.bucket = VirtualBucket(request.Header("host").value_or(""));
  if (request.bucket.empty()) {
    const size_t slash = path.find('/');
    std::optional<std::string> bucket = UriDecode(path.substr(0, slash));
    if (!bucket) return InvalidUri();
    request.bucket = *std::move(bucket);
    path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
  }
  std::optional<std::string> key = UriDecode(path);
  if (!key) return InvalidUri();
  request.key = *std::move(key);
  if (request.bucket.empty() ? !request.key.empty() : !MayNameBucket(request.bucket)) {
    return S3Error(S3Code::kInvalidBucketName, "The specified bucket is not valid.", {{"BucketName", request.bucket}});
  }
  if (request.key.size() > kMaxKeyBytes) {
    return S3Error(S3Code::kKeyTooLong, "Your key is too long",
                   {{"Size", std::to_string(request.key.size())}, {"MaxSizeAllowed", std::to_string(kMaxKeyBytes)}});
  }
  return request;
}

absl::StatusOr<S3Operation> ClassifyRequest(const S3Request& request) {
  for (const auto& [name, value] : request.query) {
    if (std::find(kForeignSubresources.begin(), kForeignSubresources.end(), name) != kForeignSubresources.end()) {
      return S3Error(S3Code::kNotImplemented, "devstore does not offer the sub-resource \"" + name + "\"");
    }
    if (name == "versionId" && value != "null") {
      return S3Error(S3Code::kInvalidArgument, "Invalid version id specified",
                     {{"ArgumentName", "versionId"}, {"ArgumentValue", value}});
    }
  }
  if (request.bucket.empty()) {
    if (request.head.method == "GET") return S3Operation::kListBuckets;
    return S3Error(S3Code::kMethodNotAllowed, "The specified method is not allowed against this resource.",
                   {{"Method", request.head.method}, {"ResourceType", "SERVICE"}});
  }
  return request.key.empty() ? ClassifyBucketRequest(request) : ClassifyObjectRequest(request);
}

absl::Status CheckNewBucketName(std::string_view name) {
  const auto plain = [](char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c); };
  bool good = !name.empty() && name.size() <= 63 && plain(name.front()) && plain(name.back()) &&
              name.find("..") == std::string_view::npos;
  for (const char c : name) good = good && (plain(c) || c == '-' || c == '.');
  // Not in the form of an IPv4 address.
  good = good && (std::count(name.begin(), name.end(), '.') != 3 ||
                  std::any_of(name.begin(), name.end(), [](char c) { return c != '.' && !absl::ascii_isdigit(c); }));
  if (good) return absl::OkStatus();
  return S3Error(
      S3Code::kInvalidBucketName,
      "The specified bucket is not valid: 1 to 63 lower-case letters, digits, '-' and '.', starting and ending with "
      "a letter or digit",
      {{"BucketName", std::string(name)}});
}

std::optional<uint64_t> ParseDecimal(std::string_view text, uint64_t min, uint64_t max) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < min || value > max) return std::nullopt;
  return value;
}

}  // namespace millrace
