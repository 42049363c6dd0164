#include "aws/sts_source.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/crypto.h"

namespace millrace {

namespace {

constexpr absl::Duration kStsTimeout = absl::Seconds(10);
constexpr int kStsAttempts = 4;

CallAction StsCall(const StsService& sts, const std::vector<std::pair<std::string, std::string>>& form) {
  CallAction call{
      sts.url.server, {"POST", sts.url.base_path + "/", {}}, "Version=2011-06-15", kStsTimeout, kStsAttempts};
  for (const auto& [name, value] : form) {
    if (!value.empty()) call.body.append(fmt::format("&{}={}", name, UriEncode(value, /*keep_slash=*/false)));
  }
  call.head.headers.Add("Host", HostHeader(sts.url.server));
  call.head.headers.Add("Content-Type", "application/x-www-form-urlencoded");
  return call;
}

/// STS says "not now" with a 400 as well.
bool StsPassing(const CredentialInput& input) {
  if (!input.status.ok() || input.http_status < 400) return false;
  const std::string code = ParseStsErrorXml(input.text).code;
  return code == "Throttling" || code == "ThrottlingException" || code == "IDPCommunicationError";
}

CredentialAction OnStsAnswer(const CredentialInput& answer, const std::vector<std::string_view>& secrets,
                             std::string_view remedy) {
  constexpr std::string_view kReach = "check AWS_REGION, AWS_ENDPOINT_URL_STS and the network";
  if (!answer.status.ok()) return RefusedBy("STS", answer, kReach);
  if (answer.http_status == 200) {
    absl::StatusOr<ExpiringCredentials> credentials = ParseStsXml(answer.text);
    if (credentials.ok()) return *std::move(credentials);
    return absl::UnavailableError(fmt::format("STS's answer: {}; {}", ToStd(credentials.status().message()), kReach));
  }
  const StsError error = ParseStsErrorXml(answer.text);
  if (error.code.empty()) return RefusedBy("STS", answer, kReach);
  const auto code = StsPassing(answer) || answer.http_status >= 500 ? absl::StatusCode::kUnavailable
                    : error.code == "AccessDenied"                  ? absl::StatusCode::kPermissionDenied
                                                                    : absl::StatusCode::kUnauthenticated;
  return absl::Status(code, fmt::format("STS answered {}: {} (HTTP {}); {}", QuoteWithout(secrets, error.code),
                                        QuoteWithout(secrets, error.message), answer.http_status, remedy));
}

class WebIdentity final : public CredentialSource {
 public:
  WebIdentity(StsService sts, AwsRole role, std::string token_file)
      : sts_(std::move(sts)), role_(std::move(role)), token_file_(std::move(token_file)) {}

  std::string Name() const override { return fmt::format("web identity (role {})", role_.arn); }
  std::string Principal(const AwsEnvironment&) const override { return fmt::format("role {}", role_.arn); }

  CredentialAction Begin(absl::Time) override {
    token_.clear();
    return ReadFileAction{token_file_};
  }

  CredentialAction OnInput(CredentialInput input, absl::Time) override {
    if (!token_.empty()) {
      return OnStsAnswer(
          input, {token_},
          "check the role's trust policy and that the token file (AWS_WEB_IDENTITY_TOKEN_FILE) is fresh");
    }
    absl::StatusOr<std::string> token = TokenOf(input, "the token file (AWS_WEB_IDENTITY_TOKEN_FILE)", CheckSecret);
    if (!token.ok()) return std::move(token).status();
    token_ = *std::move(token);
    return StsCall(sts_, {{"Action", "AssumeRoleWithWebIdentity"},
                          {"RoleArn", role_.arn},
                          {"RoleSessionName", role_.session_name},
                          {"DurationSeconds", role_.duration_seconds},
                          {"WebIdentityToken", token_}});
  }

  bool Passing(const CredentialInput& input) const override {
    return CredentialSource::Passing(input) || StsPassing(input);
  }

 private:
  const StsService sts_;
  const AwsRole role_;
  const std::string token_file_;
  std::string token_;
};

class AssumeRole final : public CredentialSource {
 public:
  AssumeRole(StsService sts, AwsRole role, std::unique_ptr<CredentialSource> base)
      : sts_(std::move(sts)), role_(std::move(role)), base_(std::move(base)) {}

  std::string Name() const override { return fmt::format("role {} by {}", role_.arn, base_->Name()); }
  std::string Principal(const AwsEnvironment&) const override { return fmt::format("role {}", role_.arn); }

  CredentialAction Begin(absl::Time now) override {
    keys_ = {};
    signed_anew_ = false;
    return OnBase(base_->Begin(now), now);
  }

  CredentialAction OnInput(CredentialInput input, absl::Time now) override {
    if (keys_.anonymous()) return OnBase(base_->OnInput(std::move(input), now), now);
    // Signed by a clock that is wrong: now theirs is known.
    if (input.http_status >= 400 && absl::AbsDuration(now - signed_) >= absl::Minutes(1) &&
        !std::exchange(signed_anew_, true)) {
      return Call(now);
    }
    return OnStsAnswer(input, {keys_.secret_key, keys_.session_token},
                       "check the role's trust policy, and that the credentials it is assumed with are allowed to");
  }

  bool Passing(const CredentialInput& input) const override {
    if (keys_.anonymous()) return base_->Passing(input);
    return CredentialSource::Passing(input) || StsPassing(input);
  }

 private:
  CredentialAction OnBase(CredentialAction action, absl::Time now) {
    const auto* base = std::get_if<ExpiringCredentials>(&action);
    if (base == nullptr) return action;
    keys_ = base->keys;
    return Call(now);
  }

  CallAction Call(absl::Time now) {
    signed_ = now;
    CallAction call = StsCall(sts_, {{"Action", "AssumeRole"},
                                     {"RoleArn", role_.arn},
                                     {"RoleSessionName", role_.session_name},
                                     {"DurationSeconds", role_.duration_seconds},
                                     {"ExternalId", role_.external_id}});
    SignRequest(call.head, HexEncode(Sha256(AsBytes(call.body))), keys_, {.region = sts_.region, .service = "sts"},
                now);
    return call;
  }

  const StsService sts_;
  const AwsRole role_;
  const std::unique_ptr<CredentialSource> base_;
  Credentials keys_;  // of the base, once it has ended
  absl::Time signed_;
  bool signed_anew_ = false;
};

}  // namespace

absl::StatusOr<StsService> StsServiceOf(const std::string& region, const std::string& custom_url, bool fips) {
  if (!PlausibleRegion(region)) {
    return absl::InvalidArgumentError(
        fmt::format("the AWS region '{}' is not a region's name; check AWS_REGION", region));
  }
  ASSIGN_OR_RETURN(EndpointUrl url,
                   ServiceEndpoint(fips ? "sts-fips" : "sts", region, custom_url, "AWS_ENDPOINT_URL_STS"));
  return StsService{std::move(url), region};
}

std::unique_ptr<CredentialSource> WebIdentitySource(StsService sts, AwsRole role, std::string token_file) {
  return std::make_unique<WebIdentity>(std::move(sts), std::move(role), std::move(token_file));
}

std::unique_ptr<CredentialSource> AssumeRoleSource(StsService sts, AwsRole role,
                                                   std::unique_ptr<CredentialSource> base) {
  return std::make_unique<AssumeRole>(std::move(sts), std::move(role), std::move(base));
}

}  // namespace millrace
