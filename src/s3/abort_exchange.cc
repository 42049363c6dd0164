#include "s3/abort_exchange.h"

#include <fmt/format.h>

#include <utility>

namespace millrace {

AbortExchange::AbortExchange(S3Context& context, std::string bucket, std::string key, std::string upload_id,
                             DoneCallback done)
    : S3Exchange(context, "AbortMultipartUpload", std::move(bucket), std::move(key)),
      upload_id_(std::move(upload_id)),
      done_(std::move(done)) {}

absl::Status AbortExchange::CheckArguments() {
  // Without its id the request would delete the object.
  return upload_id_.empty() ? absl::InvalidArgumentError("the upload id is empty") : absl::OkStatus();
}

S3Exchange::Draft AbortExchange::MakeDraft() {
  Draft draft;
  draft.method = aborted_ ? "GET" : "DELETE";
  draft.counter = aborted_ ? &context().counters.list : &context().counters.del;
  draft.query = {{"uploadId", upload_id_}};
  if (aborted_) draft.query.insert(draft.query.begin(), {"max-parts", "1"});
  return draft;
}

S3Step AbortExchange::OnSuccess(HttpResult result, absl::Time now) {
  ForgiveFailures();
  if (!std::exchange(aborted_, !aborted_)) {
    ++aborts_;
    return Again();
  }
  const absl::StatusOr<bool> left = ParseHasPartsXml(result.text);
  // It has been aborted; what a store says that does not know the question is no failure of that.
  if (!left.ok() || !*left) return Succeed();
  if (aborts_ < kMaxAborts) {
    return Retry(absl::StatusCode::kUnavailable, "parts that were on their way have come after it", now,
                 kMaxAborts + 1);
  }
  return Fail(absl::StatusCode::kUnavailable,
              fmt::format("after {} aborts there still are parts, which are paid for; abort the upload later, or let a "
                          "lifecycle rule of the bucket do it (AbortIncompleteMultipartUpload)",
                          aborts_));
}

std::optional<S3Step> AbortExchange::OnFailure(const Failure& failure, absl::Time) {
  if (failure.http_status == 404 && failure.body.code != "NoSuchBucket") return Succeed();
  const bool passes = failure.verdict.action != S3Action::kFail;
  if (aborted_ && !passes) return Succeed();
  return std::nullopt;
}

}  // namespace millrace
