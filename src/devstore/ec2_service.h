#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "devstore/auth.h"
#include "devstore/devstore.h"
#include "devstore/ec2_fake.h"
#include "devstore/faults.h"
#include "devstore/imds_fake.h"
#include "net/http_server.h"

namespace millrace {

/// Answers what is for EC2 (`POST /`) and for the metadata service of its instances (`/imds/INSTANCE/...`), and passes
/// everything else on to S3. Rules of faults see a call of EC2 as the method POST and the key ec2/ACTION. Thread-safe.
class Ec2Service final : public HttpHandler {
 public:
  /// `s3` outlives it. `rules` are those of `options`.
  Ec2Service(HttpHandler& s3, const DevstoreOptions& options, std::vector<FaultRule> rules);

  std::unique_ptr<HttpExchange> OnRequest(HttpRequestHead head, const HttpRequestFacts& facts,
                                          HttpResponder responder) override;

 private:
  friend class Ec2Exchange;
  HttpReply AnswerCall(const HttpRequestHead& head, const std::string& body);
  absl::StatusOr<std::string> Perform(const HttpRequestHead& head, const std::string& body, std::string& action,
                                      std::optional<FaultAction>& fault);
  void Log(const HttpRequestHead& head, std::string_view what, int status);

  HttpHandler& s3_;
  const AuthSettings auth_;
  const absl::Duration clock_offset_;
  const std::function<void(std::string_view)> access_log_;
  FaultPlan faults_;
  Ec2Fake ec2_;
  ImdsFake imds_;
};

}  // namespace millrace
