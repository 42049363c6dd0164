#pragma once

#include <map>
#include <mutex>
#include <string>

#include "devstore/ec2_fake.h"
#include "net/http_server.h"

namespace millrace {

/// Serves the instance metadata of each instance of an Ec2Fake, by IMDSv2 alone, below /imds/INSTANCE. Tokens come by
/// PUT, and documents only for a token of that instance that has not expired. `POST /imds/INSTANCE/interrupt?seconds=N`
/// announces a spot interruption; EC2 has no such call. Thread-safe.
class ImdsFake {
 public:
  explicit ImdsFake(Ec2Fake& ec2) : ec2_(ec2) {}

  static bool Takes(std::string_view target) { return target.starts_with("/imds/"); }
  HttpReply Answer(const HttpRequestHead& head, absl::Time now);

 private:
  struct Token {
    std::string instance;
    absl::Time ends;
  };
  HttpReply GiveToken(const HttpRequestHead& head, const std::string& instance, absl::Time now);
  bool Knows(const HttpRequestHead& head, const std::string& instance, absl::Time now);

  Ec2Fake& ec2_;
  std::mutex mutex_;
  std::map<std::string, Token> tokens_;
};

}  // namespace millrace
