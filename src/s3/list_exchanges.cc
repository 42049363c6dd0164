#include "s3/list_exchanges.h"

#include <fmt/format.h>

#include <utility>

namespace millrace {

ListBucketsExchange::ListBucketsExchange(S3Context& context, std::string continuation, BucketsCallback done)
    : S3Exchange(context, "LIST", "", ""), continuation_(std::move(continuation)), done_(std::move(done)) {}

S3Exchange::Draft ListBucketsExchange::MakeDraft() {
  Draft draft;
  draft.method = "GET";
  draft.counter = &context().counters.list;
  // Without a size of pages S3 lists all; a store that has pages all the same is asked for the next one.
  if (!continuation_.empty()) draft.query = {{"continuation-token", continuation_}};
  return draft;
}

S3Step ListBucketsExchange::OnSuccess(HttpResult result, absl::Time now) {
  absl::StatusOr<BucketPage> page = ParseBucketsXml(result.text);
  if (!page.ok()) return RetryGarbled(page.status(), now);
  page_ = *std::move(page);
  if (page_.continuation.empty() || page_.continuation != continuation_) return Succeed();
  return Fail(absl::StatusCode::kDataLoss, "the store lists the same page of buckets again and again");
}

void ListBucketsExchange::Deliver(absl::Status status) {
  if (!status.ok()) return done_(std::move(status));
  done_(std::move(page_));
}

ListUploadsExchange::ListUploadsExchange(S3Context& context, std::string bucket, std::string prefix, UploadMarker after,
                                         UploadsCallback done)
    : S3Exchange(context, "LIST", std::move(bucket), prefix),
      prefix_(std::move(prefix)),
      after_(std::move(after)),
      done_(std::move(done)) {}

S3Exchange::Draft ListUploadsExchange::MakeDraft() {
  Draft draft;
  draft.method = "GET";
  draft.counter = &context().counters.list;
  // Without encoding-type: Ceph RADOS Gateway encodes the keys then, and does not say so.
  draft.query = {{"uploads", ""}, {"max-uploads", "1000"}};
  if (!prefix_.empty()) draft.query.emplace_back("prefix", prefix_);
  if (!after_.key.empty()) {
    draft.query.emplace_back("key-marker", after_.key);
    if (!after_.upload_id.empty()) draft.query.emplace_back("upload-id-marker", after_.upload_id);
  }
  return draft;
}

S3Step ListUploadsExchange::OnSuccess(HttpResult result, absl::Time now) {
  absl::StatusOr<UploadPage> page = ParseUploadsXml(result.text);
  if (!page.ok()) return RetryGarbled(page.status(), now);
  page_ = *std::move(page);
  const absl::Status sane = CheckPage();
  return sane.ok() ? Succeed() : Fail(sane.code(), ToStd(sane.message()));
}

absl::Status ListUploadsExchange::CheckPage() const {
  for (const UnfinishedUpload& upload : page_.uploads) {
    if (upload.key.starts_with(prefix_)) continue;
    return absl::DataLossError(
        fmt::format("the store lists an upload of \"{}\", which does not begin with the prefix \"{}\" that was asked "
                    "for; nothing of this page is used; check the store, or what stands between it and this machine",
                    upload.key.substr(0, 1024), prefix_));
  }
  if (!page_.more || page_.next.key > after_.key ||
      (page_.next.key == after_.key && page_.next.upload_id != after_.upload_id)) {
    return absl::OkStatus();
  }
  return absl::DataLossError("the store lists the same page of uploads again and again");
}

void ListUploadsExchange::Deliver(absl::Status status) {
  if (!status.ok()) return done_(std::move(status));
  done_(std::move(page_));
}

}  // namespace millrace
