#pragma once

#include <memory>
#include <string>

#include "s3/exchange.h"
#include "s3/listings.h"

/// Each function makes an exchange of one request and one answer, which is read as a whole:
///
///     NewTagsExchange(context, "bucket", "key", [](absl::StatusOr<ObjectTags> tags) { ... });

namespace millrace {

/// Makes ListObjectsV2 of one page.
std::unique_ptr<S3Exchange> NewListExchange(S3Context& context, std::string bucket, ListOptions options,
                                            ListCallback done);

/// Makes ListBuckets of one page of the account's buckets.
std::unique_ptr<S3Exchange> NewListBucketsExchange(S3Context& context, std::string continuation, BucketsCallback done);

/// Sends ListMultipartUploads, for those whose keys begin with `prefix`. Returns DataLoss if the store lists others,
/// which nobody may abort, or if its pages do not come to an end.
std::unique_ptr<S3Exchange> NewListUploadsExchange(S3Context& context, std::string bucket, std::string prefix,
                                                   UploadMarker after, UploadsCallback done);

/// GetObjectTagging. The result is empty, and no error, if the store knows no tags, or if its answer is empty: Ceph
/// RADOS Gateway answers so if the tags came with the beginning of an upload by parts, since it cannot read those
/// back.
std::unique_ptr<S3Exchange> NewTagsExchange(S3Context& context, std::string bucket, std::string key, TagsCallback done);

/// Receives the result of CreateSession of a directory bucket: the keys and the token that sign requests about it, for
/// minutes.
using CreateSessionCallback = absl::AnyInvocable<void(absl::StatusOr<ExpiringCredentials>)>;
std::unique_ptr<S3Exchange> NewCreateSessionExchange(S3Context& context, std::string bucket,
                                                     CreateSessionCallback done);

/// CreateMultipartUpload; the result is the upload's id.
std::unique_ptr<S3Exchange> NewCreateMultipartExchange(S3Context& context, std::string bucket, std::string key,
                                                       UploadOptions options,
                                                       absl::AnyInvocable<void(absl::StatusOr<std::string>)> done);

}  // namespace millrace
