#pragma once

#include <string>

#include "s3/exchange.h"

namespace millrace {

/// AbortMultipartUpload, and ListParts to see that nothing is left: parts that were on their way may survive an abort
/// (Amazon S3 API Reference, "AbortMultipartUpload"), and are paid for. Then it is aborted again, a few times. An
/// upload that is gone already counts as success, and so does one whose parts these credentials may not list.
class AbortExchange final : public S3Exchange {
 public:
  AbortExchange(S3Context& context, std::string bucket, std::string key, std::string upload_id, DoneCallback done);

 private:
  static constexpr int kMaxAborts = 5;

  absl::Status CheckArguments() override;
  Draft MakeDraft() override;
  S3Step OnSuccess(HttpResult result, absl::Time now) override;
  std::optional<S3Step> OnFailure(const Failure& failure, absl::Time now) override;
  void Deliver(absl::Status status) override { done_(std::move(status)); }

  const std::string upload_id_;
  DoneCallback done_;
  bool aborted_ = false;  // and now to be looked at
  int aborts_ = 0;
};

}  // namespace millrace
