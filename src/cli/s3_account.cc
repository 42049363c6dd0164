#include "cli/s3_account.h"

#include <utility>

#include "absl/time/time.h"
#include "s3/config.h"
#include "store/completion.h"

namespace millrace::cli {

absl::StatusOr<std::unique_ptr<S3Client>> ConnectS3(Runtime& runtime) {
  ASSIGN_OR_RETURN(S3Config config, LoadS3Config());
  return std::make_unique<S3Client>(runtime, std::move(config));
}

absl::Status ForEachBucketPage(S3Client& client, absl::FunctionRef<absl::Status(const BucketPage&)> each) {
  std::string continuation;
  do {
    Completion<absl::StatusOr<BucketPage>> completion;
    client.ListBuckets(continuation, completion.Callback());
    ASSIGN_OR_RETURN(const BucketPage page, completion.Wait());
    RETURN_IF_ERROR(each(page));
    continuation = page.continuation;
  } while (!continuation.empty());
  return absl::OkStatus();
}

absl::Status ForEachUpload(S3Client& client, const std::string& bucket, const std::string& prefix,
                           absl::FunctionRef<absl::Status(const UnfinishedUpload&)> each) {
  UploadMarker after;
  for (;;) {
    Completion<absl::StatusOr<UploadPage>> completion;
    client.ListUploads(bucket, prefix, after, completion.Callback());
    ASSIGN_OR_RETURN(UploadPage page, completion.Wait());
    for (const UnfinishedUpload& upload : page.uploads) RETURN_IF_ERROR(each(upload));
    if (!page.more) return absl::OkStatus();
    after = std::move(page.next);
  }
}

std::string ListedTime(int64_t unix_ms) {
  if (unix_ms == 0) return std::string(19, ' ');
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(unix_ms), absl::LocalTimeZone());
}

}  // namespace millrace::cli
