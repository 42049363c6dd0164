#include "s3/delete_objects_exchange.h"

#include <fmt/format.h>

#include <utility>

#include "base/crypto.h"
#include "s3/checksum.h"

namespace millrace {

DeleteObjectsExchange::DeleteObjectsExchange(S3Context& context, std::string bucket, std::vector<std::string> keys,
                                             DeleteCallback done)
    : S3Exchange(context, "DeleteObjects", bucket, ""),
      bucket_(std::move(bucket)),
      keys_(std::move(keys)),
      done_(std::move(done)),
      statuses_(keys_.size()) {
  for (size_t i = 0; i < keys_.size(); ++i) open_.emplace(keys_[i], i);
}

absl::Status DeleteObjectsExchange::CheckArguments() {
  if (keys_.empty() || keys_.size() > kMaxKeys) {
    return absl::InvalidArgumentError(fmt::format("{} keys; 1 to {} are possible", keys_.size(), kMaxKeys));
  }
  for (const std::string& key : keys_) {
    if (key.empty() || !XmlCanCarry(key)) {
      return absl::InvalidArgumentError(
          "a key is empty or has characters that XML cannot express, which would name another object; delete it alone");
    }
  }
  WriteBody();
  return absl::OkStatus();
}

void DeleteObjectsExchange::WriteBody() {
  DeleteObjectsRequest request;
  request.quiet = true;  // only what failed is answered
  for (auto at = open_.begin(); at != open_.end(); at = open_.upper_bound(at->first)) {
    request.keys.emplace_back(at->first);
  }
  body_ = WriteDeleteObjectsXml(request);
  payload_hash_ = HexEncode(Sha256(AsBytes(body_)));
}

S3Exchange::Draft DeleteObjectsExchange::MakeDraft() {
  Draft draft;
  draft.method = "POST";
  draft.counter = &context().counters.del;
  draft.query = {{"delete", ""}};
  draft.headers.Add("Content-Type", "application/xml");
  // S3 demands a checksum here, and every store takes this one. Unsigned requests get it anyway.
  if (is_directory()) {  // but for directory buckets
    draft.headers.Add("x-amz-checksum-crc32c", Crc32cHeader(Crc32c(AsBytes(body_))));
  } else if (!context().config.anonymous) {
    draft.headers.Add("Content-MD5", Base64Encode(Md5(AsBytes(body_))));
  }
  draft.body = AsBytes(body_);
  draft.payload_hash = payload_hash_;
  return draft;
}

S3Step DeleteObjectsExchange::OnSuccess(HttpResult result, absl::Time now) {
  absl::StatusOr<std::vector<DeleteObjectsError>> errors = ParseDeleteResultXml(result.text);
  if (!errors.ok()) return RetryGarbled(errors.status(), now);
  std::multimap<std::string_view, size_t> still_open;
  absl::StatusCode code = absl::StatusCode::kUnavailable;
  std::string why;
  for (const DeleteObjectsError& error : *errors) {
    const auto [first, last] = open_.equal_range(error.key);
    if (first == last) {
      return RetryGarbled(absl::InvalidArgumentError("it has an error for a key that was not in the request"), now);
    }
    const S3Verdict verdict = ClassifyS3Error(200, error.code);
    if (verdict.code == absl::StatusCode::kNotFound && error.code != "NoSuchBucket") continue;
    if (still_open.contains(error.key)) continue;  // reported twice
    std::string what = fmt::format("DeleteObjects failed: {}: {}", error.code, error.message);
    if (!verdict.remedy.empty()) what.append("; ").append(verdict.remedy);
    const bool passes = verdict.action == S3Action::kRetry || verdict.action == S3Action::kThrottle;
    for (auto at = first; at != last; ++at) {
      statuses_[at->second] = absl::Status(verdict.code, fmt::format("s3://{}/{}: {}", bucket_, error.key, what));
      if (passes) still_open.insert(*at);
    }
    if (!passes) continue;
    code = verdict.code;
    why = fmt::format("{}: {}", error.code, error.message);
  }
  if (still_open.size() < open_.size()) ForgiveFailures();
  for (const auto& [key, place] : still_open) statuses_[place] = absl::OkStatus();  // perhaps next time
  open_ = std::move(still_open);
  if (open_.empty()) return Succeed();
  WriteBody();
  return Retry(code, why, now);
}

void DeleteObjectsExchange::Deliver(absl::Status status) {
  for (const auto& [key, place] : open_) statuses_[place] = status;
  done_(std::move(statuses_));
}

}  // namespace millrace
