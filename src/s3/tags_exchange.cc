#include "s3/tags_exchange.h"

#include <utility>

namespace millrace {

TagsExchange::TagsExchange(S3Context& context, std::string bucket, std::string key, TagsCallback done)
    : S3Exchange(context, "GetObjectTagging", std::move(bucket), std::move(key)), done_(std::move(done)) {}

S3Exchange::Draft TagsExchange::MakeDraft() {
  Draft draft;
  draft.method = "GET";
  draft.counter = &context().counters.head;  // about an object, not of its bytes
  draft.query = {{"tagging", ""}};
  return draft;
}

S3Step TagsExchange::OnSuccess(HttpResult result, absl::Time now) {
  if (result.text.empty()) return Succeed();
  absl::StatusOr<ObjectTags> tags = ParseTaggingXml(result.text);
  if (!tags.ok()) return RetryGarbled(tags.status(), now);
  tags_ = *std::move(tags);
  return Succeed();
}

std::optional<S3Step> TagsExchange::OnFailure(const Failure& failure, absl::Time) {
  const bool unknown =
      failure.http_status == 501 || failure.http_status == 405 || failure.body.code == "NotImplemented";
  if (unknown || failure.body.code == "NoSuchTagSet") return Succeed();
  return std::nullopt;
}

void TagsExchange::Deliver(absl::Status status) {
  if (!status.ok()) return done_(std::move(status));
  done_(std::move(tags_));
}

}  // namespace millrace
