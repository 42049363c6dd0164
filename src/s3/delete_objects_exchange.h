#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "s3/exchange.h"

namespace millrace {

/// Sends DeleteObjects: up to 1,000 keys by one request. Its answer of 200 may hold an error for each key. Errors that
/// pass are tried again, with only the keys concerned. Objects that do not exist any more count as success.
class DeleteObjectsExchange final : public S3Exchange {
 public:
  static constexpr size_t kMaxKeys = 1000;

  DeleteObjectsExchange(S3Context& context, std::string bucket, std::vector<std::string> keys, DeleteCallback done);

 private:
  bool NeedsKey() const override { return false; }
  absl::Status CheckArguments() override;
  Draft MakeDraft() override;
  S3Step OnSuccess(HttpResult result, absl::Time now) override;
  void Deliver(absl::Status status) override;

  void WriteBody();

  const std::string bucket_;
  const std::vector<std::string> keys_;
  DeleteCallback done_;
  std::vector<absl::Status> statuses_;            // of keys_
  std::multimap<std::string_view, size_t> open_;  // keys whose fate is not known yet, to their places
  std::string body_;                              // asks for them
  std::string payload_hash_;
};

}  // namespace millrace
