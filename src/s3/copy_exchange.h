#pragma once

#include <optional>
#include <string>

#include "s3/exchange.h"

namespace millrace {

/// Sends CopyObject, or UploadPartCopy with a part: the store reads the source and writes the target by itself. The
/// source is pinned by its ETag. Both answer 200 before they are done, send spaces meanwhile, and may end with an error
/// all the same.
///
/// Fails with FailedPrecondition when the source has another ETag; Unimplemented when the store does not copy. Fails
/// with AlreadyExists when there is an object in place of the target, and `only_if_absent` is set, unless the store
/// does not know that condition.
class CopyExchange final : public S3Exchange {
 public:
  struct Part {
    std::string upload_id;
    int number = 0;
    ByteRange range;  // of the source; not empty
  };
  CopyExchange(S3Context& context, std::string bucket, std::string key, S3CopySource from, std::optional<Part> part,
               bool only_if_absent, PutCallback done);

 private:
  absl::Status CheckArguments() override;
  bool UsesSession() const override { return false; }  // as botocore
  Draft MakeDraft() override;
  S3Step OnSuccess(HttpResult result, absl::Time now) override;
  std::optional<S3Step> OnFailure(const Failure& failure, absl::Time now) override;
  void Deliver(absl::Status status) override;

  uint64_t bytes() const { return part_ ? part_->range.length : from_.size; }
  S3Step ConditionFailed(const Failure& failure, bool target_exists);

  const S3CopySource from_;
  const std::optional<Part> part_;
  bool only_if_absent_;
  PutCallback done_;
  std::string etag_;
  std::optional<Failure> refused_;  // by a condition, of the source or of the target: a HEAD of the target decides
  bool may_be_own_ = false;         // an attempt before that may have made the target
};

}  // namespace millrace
