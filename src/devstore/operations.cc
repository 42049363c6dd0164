#include "devstore/operations.h"

#include <algorithm>
#include <array>

#include "devstore/s3_error.h"
#include "s3/bucket_name.h"

namespace millrace {

namespace {

/// These are sub-resources of S3 that devstore does not have. If they were ignored, the answer would be to another
/// request.
constexpr std::array<std::string_view, 32> kForeignSubresources = {
    "accelerate",        "acl",         "analytics",      "annotation",
    "attributes",        "cors",        "encryption",     "intelligent-tiering",
    "inventory",         "legal-hold",  "lifecycle",      "logging",
    "metadataTable",     "metrics",     "notification",   "object-lock",
    "ownershipControls", "policy",      "policyStatus",   "publicAccessBlock",
    "renameObject",      "replication", "requestPayment", "restore",
    "retention",         "select",      "session",        "tagging",
    "torrent",           "versioning",  "versions",       "website"};

constexpr Operation kListBuckets{"ListBuckets", ListBuckets};
constexpr Operation kCreateBucket{.name = "CreateBucket", .run = CreateBucket, .takes_document = true};
constexpr Operation kDeleteBucket{"DeleteBucket", DeleteBucket};
constexpr Operation kHeadBucket{.name = "HeadBucket", .run = HeadBucket, .is_quick = true};
constexpr Operation kCreateSession{.name = "CreateSession", .run = CreateSession, .is_quick = true};
constexpr Operation kGetBucketLocation{.name = "GetBucketLocation", .run = GetBucketLocation, .is_quick = true};
constexpr Operation kListObjects{"ListObjects", ListObjects};
constexpr Operation kListObjectsV2{"ListObjectsV2", ListObjectsV2};
constexpr Operation kListUploads{"ListMultipartUploads", ListUploads};
constexpr Operation kDeleteObjects{.name = "DeleteObjects", .run = DeleteObjects, .takes_document = true};
constexpr Operation kGetObject{.name = "GetObject", .run = GetObject, .is_quick = true};
constexpr Operation kHeadObject{.name = "HeadObject", .run = GetObject, .is_quick = true};
constexpr Operation kPutObject{.name = "PutObject", .check = CheckPutObject, .store = PutObject};
constexpr Operation kCopyObject{"CopyObject", CopyObject};
constexpr Operation kDeleteObject{"DeleteObject", DeleteObject};
constexpr Operation kCreateUpload{"CreateMultipartUpload", CreateUpload};
constexpr Operation kUploadPart{.name = "UploadPart", .check = CheckUploadPart, .store = UploadPartFromBody};
constexpr Operation kUploadPartCopy{"UploadPartCopy", UploadPartCopy};
constexpr Operation kCompleteUpload{.name = "CompleteMultipartUpload", .run = CompleteUpload, .takes_document = true};
constexpr Operation kAbortUpload{"AbortMultipartUpload", AbortUpload};
constexpr Operation kListParts{"ListParts", ListParts};

absl::Status NotAllowed(const S3Request& request, std::string_view resource_type) {
  return S3Error(s3code::kMethodNotAllowed, "The specified method is not allowed against this resource.",
                 {{"Method", request.head.method}, {"ResourceType", std::string(resource_type)}});
}

absl::StatusOr<const Operation*> OperationOnBucket(const S3Request& request) {
  const std::string& method = request.head.method;
  if (method == "GET") {
    if (request.Has("location")) return &kGetBucketLocation;
    if (request.Has("uploads")) return &kListUploads;
    const std::string type = request.ParameterOr("list-type");
    if (!type.empty() && type != "2") {
      return S3Error(s3code::kInvalidArgument, "Invalid List Type",
                     {{"ArgumentName", "list-type"}, {"ArgumentValue", type}});
    }
    return type.empty() ? &kListObjects : &kListObjectsV2;
  }
  if (method == "HEAD") return &kHeadBucket;
  if (method == "PUT") return &kCreateBucket;
  if (method == "DELETE") return &kDeleteBucket;
  if (method == "POST" && request.Has("delete")) return &kDeleteObjects;
  return NotAllowed(request, "BUCKET");
}

absl::StatusOr<const Operation*> OperationOnObject(const S3Request& request) {
  const std::string& method = request.head.method;
  const bool of_upload = request.Has("uploadId");
  if (method == "GET") return of_upload ? &kListParts : &kGetObject;
  if (method == "HEAD") return &kHeadObject;
  if (method == "PUT") {
    const bool copy = request.Header("x-amz-copy-source").has_value();
    if (of_upload || request.Has("partNumber")) return copy ? &kUploadPartCopy : &kUploadPart;
    return copy ? &kCopyObject : &kPutObject;
  }
  if (method == "DELETE") return of_upload ? &kAbortUpload : &kDeleteObject;
  if (method == "POST" && request.Has("uploads")) return &kCreateUpload;
  if (method == "POST" && of_upload) return &kCompleteUpload;
  return NotAllowed(request, "OBJECT");
}

}  // namespace

absl::StatusOr<const Operation*> FindOperation(const S3Request& request) {
  const bool about_bucket = request.head.method == "GET" && request.key.empty();
  if (about_bucket && request.Has("session") && IsDirectoryBucket(request.bucket)) return &kCreateSession;
  for (const auto& [name, value] : request.query) {
    if (std::find(kForeignSubresources.begin(), kForeignSubresources.end(), name) != kForeignSubresources.end()) {
      return S3Error(s3code::kNotImplemented, "devstore does not offer the sub-resource \"" + name + "\"");
    }
    if (name == "versionId" && value != "null") {
      return S3Error(s3code::kInvalidArgument, "Invalid version id specified",
                     {{"ArgumentName", "versionId"}, {"ArgumentValue", value}});
    }
  }
  if (!request.bucket.empty()) return request.key.empty() ? OperationOnBucket(request) : OperationOnObject(request);
  if (request.head.method == "GET") return &kListBuckets;
  return NotAllowed(request, "SERVICE");
}

}  // namespace millrace
