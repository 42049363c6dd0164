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

/// The operations of S3: each takes a checked request and makes the answer, or an error of s3_error.h. Thread-safe,
/// blocking.

namespace millrace {

struct OperationContext {
  Storage& storage;
  ETagOverrides& etags;
  std::string region;
  ETagKind etag_kind = ETagKind::kMd5;
};

using Reply = absl::StatusOr<HttpReply>;

// Buckets (bucket_operations.cc).
Reply ListBuckets(OperationContext& context, const S3Request& request);
Reply CreateBucket(OperationContext& context, const S3Request& request, std::string_view body);
Reply DeleteBucket(OperationContext& context, const S3Request& request);
Reply HeadBucket(OperationContext& context, const S3Request& request);
Reply GetBucketLocation(OperationContext& context, const S3Request& request);
Reply ListObjects(OperationContext& context, const S3Request& request);
Reply ListObjectsV2(OperationContext& context, const S3Request& request);
Reply DeleteObjects(OperationContext& context, const S3Request& request, std::string_view body);

// Objects (object_operations.cc).
/// What is sent in place of the range that was asked for.
enum class RangeFault { kNone, kAnother, kFirstHalf, kWholeObject };
/// Also HEAD.
Reply GetObject(OperationContext& context, const S3Request& request, RangeFault fault);
Reply PutObject(OperationContext& context, const S3Request& request, const RequestBody& body,
                std::shared_ptr<Content> content);
Reply CopyObject(OperationContext& context, const S3Request& request);
Reply DeleteObject(OperationContext& context, const S3Request& request);

// Multipart uploads (upload_operations.cc).
Reply CreateUpload(OperationContext& context, const S3Request& request);
/// What can be refused before the body arrives; for PutObject as well.
absl::Status CheckBeforeBody(OperationContext& context, const S3Request& request, S3Operation operation);
/// For the body of PutObject or UploadPart.
absl::StatusOr<std::unique_ptr<BlobWriter>> NewContent(OperationContext& context, const S3Request& request,
                                                       S3Operation operation, uint64_t size);
Reply UploadPartFromBody(OperationContext& context, const S3Request& request, const RequestBody& body,
                         std::shared_ptr<Content> content);
Reply UploadPartCopy(OperationContext& context, const S3Request& request);
Reply CompleteUpload(OperationContext& context, const S3Request& request, std::string_view body);
Reply AbortUpload(OperationContext& context, const S3Request& request);
Reply ListParts(OperationContext& context, const S3Request& request);
Reply ListUploads(OperationContext& context, const S3Request& request);

}  // namespace millrace
