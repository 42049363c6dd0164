#include "s3/copy_exchange.h"

#include <fmt/format.h>

#include <utility>

#include "aws/sigv4.h"
#include "s3/bucket_name.h"
#include "s3/etag.h"

namespace millrace {

namespace {

// Some stores say nothing until they have copied it all.
constexpr int64_t kSlowestBytesPerSecond = 20 << 20;
constexpr absl::Duration kMinExtraTimeout = absl::Seconds(45);

}  // namespace

CopyExchange::CopyExchange(S3Context& context, std::string bucket, std::string key, S3CopySource from,
                           std::optional<Part> part, bool only_if_absent, PutCallback done)
    : S3Exchange(context, part ? "UploadPartCopy" : "CopyObject", std::move(bucket), std::move(key)),
      from_(std::move(from)),
      part_(std::move(part)),
      only_if_absent_(only_if_absent),
      done_(std::move(done)) {}

absl::Status CopyExchange::CheckArguments() {
  // An empty name or range would make another request of it.
  if (!PlausibleBucket(from_.bucket) || from_.key.empty())
    return absl::InvalidArgumentError(fmt::format("s3://{}/{} cannot be an object", from_.bucket, from_.key));
  if (!part_) return absl::OkStatus();
  RETURN_IF_ERROR(CheckPart(part_->upload_id, part_->number));
  if (part_->range.length == 0) return absl::InvalidArgumentError("a part of an upload cannot be empty");
  return absl::OkStatus();
}

S3Exchange::Draft CopyExchange::MakeDraft() {
  Draft draft;
  if (refused_) {
    draft.method = "HEAD";
    draft.counter = &context().counters.head;
    return draft;
  }
  draft.method = "PUT";
  draft.counter = &context().counters.put;
  draft.extra_timeout = kMinExtraTimeout + absl::Seconds(static_cast<int64_t>(bytes()) / kSlowestBytesPerSecond);
  // The ARN of an object behind an access point is encoded as a whole.
  draft.headers.Add("x-amz-copy-source", IsBucketArn(from_.bucket)
                                             ? UriEncode(ObjectResource(from_.bucket, from_.key), /*keep_slash=*/true)
                                             : fmt::format("{}/{}", from_.bucket, UriEncode(from_.key, true)));
  if (!from_.etag.empty()) draft.headers.Add("x-amz-copy-source-if-match", IfMatchValue(from_.etag));
  if (only_if_absent_) draft.headers.Add("If-None-Match", "*");
  if (!part_) AddEncryption(draft.headers, context().config);
  if (part_) {
    draft.query = {{"partNumber", std::to_string(part_->number)}, {"uploadId", part_->upload_id}};
    draft.headers.Add("x-amz-copy-source-range",
                      fmt::format("bytes={}-{}", part_->range.offset, part_->range.end() - 1));
  }
  return draft;
}

S3Step CopyExchange::ConditionFailed(const Failure& failure, bool target_exists) {
  Failure explained = failure;
  const std::string changed =
      fmt::format("s3://{}/{} has changed since it was listed; copy it again", from_.bucket, from_.key);
  explained.verdict = {absl::StatusCode::kFailedPrecondition, S3Action::kFail, changed};
  if (target_exists) {
    explained.verdict = {absl::StatusCode::kAlreadyExists, S3Action::kFail, "there is an object of that key already"};
  }
  return FailWith(explained);
}

S3Step CopyExchange::OnSuccess(HttpResult result, absl::Time now) {
  if (refused_) {
    etag_ = StripETagQuotes(head()->headers.Find("etag").value_or(""));
    return may_be_own_ && !etag_.empty() && etag_ == from_.etag ? Succeed() : ConditionFailed(*refused_, true);
  }
  absl::StatusOr<std::string> etag = ParseCopyResultXml(result.text);
  if (!etag.ok()) return RetryGarbled(etag.status(), now);
  etag_ = *std::move(etag);
  return Succeed();
}

// The table speaks of the target; here it is mostly the source that is the trouble.
std::optional<S3Step> CopyExchange::OnFailure(const Failure& failure, absl::Time) {
  if (refused_) {
    if (failure.http_status == 404) return ConditionFailed(*refused_, false);
    return std::nullopt;
  }
  const std::string source = fmt::format("s3://{}/{}", from_.bucket, from_.key);
  const auto fail = [&](absl::StatusCode code, const std::string& remedy) {
    Failure explained = failure;
    explained.verdict = {code, S3Action::kFail, remedy};
    return FailWith(explained);
  };
  if (IsNotImplemented(failure) && only_if_absent_) {
    only_if_absent_ = false;
    return Again();
  }
  if (IsNotImplemented(failure))
    return fail(absl::StatusCode::kUnimplemented, "the store does not copy objects by itself");
  if (failure.body.code == "PreconditionFailed" || failure.http_status == 412) {
    if (!only_if_absent_) return ConditionFailed(failure, false);
    refused_ = failure;
    may_be_own_ = ambiguous();
    return Again();
  }
  if (failure.body.code == "NoSuchKey")
    return fail(absl::StatusCode::kNotFound, fmt::format("the source {} does not exist", source));
  if (failure.verdict.code == absl::StatusCode::kPermissionDenied) {
    return fail(
        absl::StatusCode::kPermissionDenied,
        fmt::format("a copy within the store needs credentials that may read {} (s3:GetObject, s3:GetObjectTagging "
                    "for tags) and write the target (s3:PutObject, s3:PutObjectTagging); or copy it by a folder; "
                    "{}",
                    source, DenialRemedy(failure)));
  }
  return std::nullopt;
}

void CopyExchange::Deliver(absl::Status status) {
  if (!status.ok()) return done_(std::move(status));
  done_(ObjectInfo{.key = key(), .size = bytes(), .etag = std::move(etag_)});
}

}  // namespace millrace
