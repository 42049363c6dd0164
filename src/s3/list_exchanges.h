#pragma once

#include <string>

#include "s3/exchange.h"
#include "s3/listings.h"

namespace millrace {

/// ListBuckets: those of the account, a page of them.
class ListBucketsExchange final : public S3Exchange {
 public:
  ListBucketsExchange(S3Context& context, std::string continuation, BucketsCallback done);

 private:
  bool NeedsBucket() const override { return false; }
  bool NeedsKey() const override { return false; }
  Draft MakeDraft() override;
  S3Step OnSuccess(HttpResult result, absl::Time now) override;
  void Deliver(absl::Status status) override;

  const std::string continuation_;
  BucketsCallback done_;
  BucketPage page_;
};

/// ListMultipartUploads: those whose keys begin with `prefix`. DataLoss if the store lists others, which nobody may
/// abort, or if its pages do not come to an end.
class ListUploadsExchange final : public S3Exchange {
 public:
  ListUploadsExchange(S3Context& context, std::string bucket, std::string prefix, UploadMarker after,
                      UploadsCallback done);

 private:
  bool NeedsKey() const override { return false; }
  Draft MakeDraft() override;
  S3Step OnSuccess(HttpResult result, absl::Time now) override;
  void Deliver(absl::Status status) override;
  absl::Status CheckPage() const;

  const std::string prefix_;
  const UploadMarker after_;
  UploadsCallback done_;
  UploadPage page_;
};

}  // namespace millrace
