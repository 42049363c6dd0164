#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

/// These names stand for buckets: of a bucket, of an access point by its ARN, of a directory bucket. Pure.

namespace millrace {

struct S3BucketName {
  enum class Kind { kBucket, kAccessPoint, kDirectory };
  Kind kind = Kind::kBucket;
  std::string label;   // in the host's name: the bucket's, or NAME-ACCOUNT of an access point
  std::string region;  // in the ARN of an access point; "" else
  std::string zone;    // of a directory bucket: "usw2-az1"
};

/// Returns InvalidArgument for names that no bucket has. ARNs of buckets, of S3 Object Lambda, of multi-region access
/// points and of Outposts are refused as well. The message says what to write instead.
absl::StatusOr<S3BucketName> ParseBucketName(std::string_view bucket);

/// Returns the length of the ARN at the beginning of `text`, up to the slash in front of the key, or all of it.
///
///   arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME/key
size_t ArnLength(std::string_view text);
/// Returns the ARN with ':' in front of the access point's name, so that the first '/' ends the bucket of a URI.
std::string CanonicalArn(std::string_view arn);

/// Returns true for buckets of S3 Express One Zone, and access points of these, such as "data--usw2-az1--x-s3".
bool IsDirectoryBucket(std::string_view bucket);
inline bool IsBucketArn(std::string_view bucket) {
  return bucket.starts_with("arn:");
}

/// Returns the resource of IAM policies: "arn:aws:s3:::bucket", or that of an access point or a directory bucket.
std::string BucketResource(std::string_view bucket);
/// Returns "arn:aws:s3:::bucket/key", or that of the object in an access point.
std::string ObjectResource(std::string_view bucket, std::string_view key);

}  // namespace millrace
