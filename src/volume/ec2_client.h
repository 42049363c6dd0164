#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "aws/settings.h"
#include "net/runtime.h"
#include "volume/ec2_documents.h"

namespace millrace {

/// Identifies the instance that this process runs on, as its metadata service says.
struct Ec2Identity {
  std::string instance;
  std::string zone;
  std::string region;
};

/// Asks the metadata service, by IMDSv2. Unavailable if it does not answer, FailedPrecondition if it is switched off.
/// Blocks; not on an event loop.
absl::StatusOr<Ec2Identity> AskEc2Identity(Runtime& runtime, const AwsEnvironment& environment);

/// Calls the EC2 Query API, signed with the credentials that S3 has, too (aws/credential_chain.h). It makes one attempt
/// a call; the caller decides what may be called again, and when. Blocks; not on an event loop. Not thread-safe.
class Ec2Client {
 public:
  using Parameters = std::vector<std::pair<std::string, std::string>>;

  /// `region`: "" is that of the settings (AWS_REGION). The endpoint is AWS_ENDPOINT_URL_EC2 or that of AWS.
  /// (AWS_ENDPOINT_URL is a store's: it gets no signed requests for EC2.) InvalidArgument for settings that make no
  /// sense. `runtime` outlives it.
  static absl::StatusOr<std::unique_ptr<Ec2Client>> Open(Runtime& runtime, AwsEnvironment environment,
                                                         const std::string& region);
  ~Ec2Client();
  Ec2Client(const Ec2Client&) = delete;
  Ec2Client& operator=(const Ec2Client&) = delete;

  /// Returns the answer's body, or the error of Ec2Error (volume/ec2_documents.h); Unavailable also if no answer came.
  absl::StatusOr<std::string> Call(const std::string& action, const Parameters& parameters);

  /// Returns the time of EC2's clock, or up to a second before it. Until EC2 has answered, it is this machine's time.
  absl::Time Now() const;

  const std::string& region() const;

 private:
  class Impl;
  explicit Ec2Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
