#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "aws/credential_source.h"

namespace millrace {

struct WaitAction {
  absl::Duration wait;
};

/// Makes one fetch of credentials: from a source, with calls that are tried again while that may help, and with its
/// clock compared with ours. It is a state machine without I/O, clock or threads. The driver does what each step says
/// and gives the answer to OnInput, or after a wait calls AfterWait, until a result comes.
class CredentialFlow {
 public:
  using Result = absl::StatusOr<ExpiringCredentials>;  // `expires` by our clock
  using Step = std::variant<ReadFileAction, WriteFileAction, RunProcessAction, CallAction, WaitAction, Result>;

  CredentialFlow(std::unique_ptr<CredentialSource> source, uint64_t jitter_key)
      : source_(std::move(source)), jitter_key_(jitter_key) {}

  std::string Name() const { return source_->Name(); }
  Step Begin(absl::Time now);
  Step OnInput(CredentialInput input, absl::Time now);
  Step AfterWait() { return call_; }

 private:
  Step Take(CredentialAction action, absl::Time now);

  const std::unique_ptr<CredentialSource> source_;
  const uint64_t jitter_key_;
  CallAction call_;  // the last
  bool calling_ = false;
  int failures_ = 0;  // of this call
  int all_failures_ = 0;
  absl::Duration skew_;  // their clock minus ours
};

}  // namespace millrace
