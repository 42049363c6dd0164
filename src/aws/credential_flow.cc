#include "aws/credential_flow.h"

#include <fmt/format.h>

#include <utility>

#include "aws/credential_chain.h"
#include "base/backoff.h"
#include "base/rng.h"

namespace millrace {

namespace {

// Less is the Date header's granularity and the answer's way.
constexpr absl::Duration kMinSkew = absl::Minutes(1);

}  // namespace

CredentialFlow::Step CredentialFlow::Begin(absl::Time now) {
  return Take(source_->Begin(now), now);
}

CredentialFlow::Step CredentialFlow::OnInput(CredentialInput input, absl::Time now) {
  if (calling_) {
    if (input.date && absl::AbsDuration(*input.date - now) >= kMinSkew) skew_ = *input.date - now;
    if (source_->Passing(input) && ++failures_ < call_.attempts) {
      ++all_failures_;
      return WaitAction{Backoff(failures_, HashKey(jitter_key_, {static_cast<uint64_t>(all_failures_)}))};
    }
  }
  return Take(source_->OnInput(std::move(input), now + skew_), now);
}

CredentialFlow::Step CredentialFlow::Take(CredentialAction action, absl::Time now) {
  failures_ = 0;
  calling_ = false;
  const auto fail = [this](const absl::Status& why) -> Result {
    const std::string what = fmt::format("{}: {}", Name(), ToStd(why.message()));
    if (absl::IsNotFound(why))
      return absl::UnauthenticatedError(fmt::format("{} (last tried: {})", kNoCredentials, what));
    return absl::Status(why.code(), fmt::format("AWS credentials from {}", what));
  };
  if (auto* file = std::get_if<ReadFileAction>(&action)) return std::move(*file);
  if (auto* file = std::get_if<WriteFileAction>(&action)) return std::move(*file);
  if (auto* process = std::get_if<RunProcessAction>(&action)) return std::move(*process);
  if (auto* call = std::get_if<CallAction>(&action)) {
    calling_ = true;
    call_ = std::move(*call);
    return call_;
  }
  if (const auto* why = std::get_if<absl::Status>(&action)) return fail(*why);
  auto& credentials = std::get<ExpiringCredentials>(action);
  credentials.expires -= skew_;
  if (credentials.expires <= now) {
    return fail(
        absl::UnauthenticatedError("it gave credentials that have expired already; check this machine's clock"));
  }
  return Result(std::move(credentials));
}

}  // namespace millrace
