#pragma once

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "net/runtime.h"
#include "s3/client.h"
#include "s3/listings.h"

/// Questions to a store that are not about objects: buckets, and unfinished uploads. Blocking.

namespace millrace::cli {

/// A client with the settings of the environment (s3/config.h). The Runtime must outlive it.
absl::StatusOr<std::unique_ptr<S3Client>> ConnectS3(Runtime& runtime);

/// Calls `each` with the buckets of the account, page by page, until it fails.
absl::Status ForEachBucketPage(S3Client& client, absl::FunctionRef<absl::Status(const BucketPage&)> each);

/// Calls `each` with the unfinished uploads of keys that begin with `prefix`, in the store's order, until it fails.
absl::Status ForEachUpload(S3Client& client, const std::string& bucket, const std::string& prefix,
                           absl::FunctionRef<absl::Status(const UnfinishedUpload&)> each);

/// A time in milliseconds since 1970 as `ls` prints it, of 19 characters; of 0 spaces.
std::string ListedTime(int64_t unix_ms);

}  // namespace millrace::cli
