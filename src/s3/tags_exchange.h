#pragma once

#include <string>

#include "s3/exchange.h"

namespace millrace {

/// GetObjectTagging. A store that knows no tags has none: no error; nor is an empty answer, with which Ceph RADOS
/// Gateway tells of an object whose tags came with the beginning of its upload by parts, since it cannot read those
/// back.
class TagsExchange final : public S3Exchange {
 public:
  TagsExchange(S3Context& context, std::string bucket, std::string key, TagsCallback done);

 private:
  Draft MakeDraft() override;
  S3Step OnSuccess(HttpResult result, absl::Time now) override;
  std::optional<S3Step> OnFailure(const Failure& failure, absl::Time now) override;
  void Deliver(absl::Status status) override;

  TagsCallback done_;
  ObjectTags tags_;
};

}  // namespace millrace
