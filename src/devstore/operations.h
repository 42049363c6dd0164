#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "devstore/etag_overrides.h"
#include "devstore/request_body.h"
#include "devstore/s3_request.h"
#include "devstore/storage.h"
#include "net/http_server.h"

/// These are the operations of S3: each takes a checked request and makes the answer, or an error of s3_error.h.
/// Thread-safe, blocking.

namespace millrace {

struct OperationContext {
  Storage& storage;
  ETagOverrides& etags;
  std::string region;
  ETagKind etag_kind = ETagKind::kMd5;
  std::string secret_key = {};  // of the server, for sessions of directory buckets
};

using Reply = absl::StatusOr<HttpReply>;

/// Describes an operation of S3: either `run`, or, if the body becomes the content of an object or part, `check` and
/// `store`.
struct Operation {
  std::string_view name;  // AWS's, for the access log
  Reply (*run)(OperationContext& context, const S3Request& request) = nullptr;
  bool is_quick = false;        // takes some microseconds and is done on the loop: a hand-over would cost more
  bool takes_document = false;  // the body is XML; `run` finds it in S3Request::document
  absl::Status (*check)(OperationContext& context, const S3Request& request) = nullptr;  // before the body arrives
  Reply (*store)(OperationContext& context, const S3Request& request, const RequestBody& body,
                 std::shared_ptr<Content> content) = nullptr;
};

/// Returns the operation that the request asks for. Returns NotImplemented or MethodNotAllowed if devstore does not
/// offer it.
absl::StatusOr<const Operation*> FindOperation(const S3Request& request);

// These work on buckets (bucket_operations.cc).
Reply ListBuckets(OperationContext& context, const S3Request& request);
Reply CreateBucket(OperationContext& context, const S3Request& request);
Reply DeleteBucket(OperationContext& context, const S3Request& request);
Reply HeadBucket(OperationContext& context, const S3Request& request);
Reply CreateSession(OperationContext& context, const S3Request& request);
Reply GetBucketLocation(OperationContext& context, const S3Request& request);
Reply ListObjects(OperationContext& context, const S3Request& request);
Reply ListObjectsV2(OperationContext& context, const S3Request& request);
Reply DeleteObjects(OperationContext& context, const S3Request& request);

// These work on objects (object_operations.cc).
Reply GetObject(OperationContext& context, const S3Request& request);  // also HEAD
absl::Status CheckPutObject(OperationContext& context, const S3Request& request);
Reply PutObject(OperationContext& context, const S3Request& request, const RequestBody& body,
                std::shared_ptr<Content> content);
Reply CopyObject(OperationContext& context, const S3Request& request);
Reply DeleteObject(OperationContext& context, const S3Request& request);

// These work on multipart uploads (upload_operations.cc).
Reply CreateUpload(OperationContext& context, const S3Request& request);
absl::Status CheckUploadPart(OperationContext& context, const S3Request& request);
Reply UploadPartFromBody(OperationContext& context, const S3Request& request, const RequestBody& body,
                         std::shared_ptr<Content> content);
Reply UploadPartCopy(OperationContext& context, const S3Request& request);
Reply CompleteUpload(OperationContext& context, const S3Request& request);
Reply AbortUpload(OperationContext& context, const S3Request& request);
Reply ListParts(OperationContext& context, const S3Request& request);
Reply ListUploads(OperationContext& context, const S3Request& request);

}  // namespace millrace
