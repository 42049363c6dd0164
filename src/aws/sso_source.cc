#include "aws/sso_source.h"

#include <fmt/format.h>

#include <utility>

#include "base/crypto.h"

namespace millrace {

namespace {

constexpr absl::Duration kSsoTimeout = absl::Seconds(10);
constexpr int kSsoAttempts = 4;
constexpr absl::Duration kMinLife = absl::Minutes(1);  // the portal is asked with it, and perhaps again

bool MayPass(const CredentialInput& answer) {
  return !answer.status.ok() || answer.http_status >= 500 || answer.http_status == 429;
}

class Sso final : public CredentialSource {
 public:
  explicit Sso(SsoLogin login) : login_(std::move(login)) {
    const std::string& key = login_.session.empty() ? login_.start_url : login_.session;
    path_ = fmt::format("{}/{}.json", login_.cache_folder, HexEncode(Sha1(AsBytes(key))));
  }
  std::string Name() const override { return fmt::format("SSO of profile '{}'", login_.profile); }
  std::string Principal(const AwsEnvironment&) const override {
    return fmt::format("sso {}/{}", login_.account_id, login_.role_name);
  }

  CredentialAction Begin(absl::Time) override {
    stage_ = Stage::kFile;
    refused_.reset();
    return ReadFileAction{path_};
  }

  CredentialAction OnInput(CredentialInput input, absl::Time now) override {
    switch (stage_) {
      case Stage::kFile:
        return OnFile(std::move(input), now);
      case Stage::kRenewal:
        return OnRenewal(input, now);
      case Stage::kKeeping:
        return AskPortal();  // whether it could be kept or not
      case Stage::kPortal:
        break;
    }
    return OnPortal(input);
  }

 private:
  enum class Stage { kFile, kRenewal, kKeeping, kPortal };

  std::string Remedy() const { return fmt::format("run `aws sso login --profile {}`", login_.profile); }

  CredentialAction OnFile(CredentialInput file, absl::Time now) {
    if (!file.status.ok()) return absl::UnauthenticatedError(fmt::format("there is no login; {}", Remedy()));
    absl::StatusOr<SsoToken> token = ParseSsoTokenJson(file.text);
    if (!token.ok()) {
      return absl::UnauthenticatedError(
          fmt::format("the cached token: {}; {}", ToStd(token.status().message()), Remedy()));
    }
    const bool renewable = token->registration_expires > now && !refused_;
    if (token->expires > now + (renewable ? kMinLife : absl::ZeroDuration())) {
      token_ = std::move(token->access_token);
      return AskPortal();
    }
    if (refused_) return *refused_;
    if (!renewable) return absl::UnauthenticatedError(fmt::format("the login has expired; {}", Remedy()));
    stage_ = Stage::kRenewal;
    file_ = std::move(file.text);
    CallAction call{login_.oidc.server, {"POST", login_.oidc.base_path + "/token", {}}, "", kSsoTimeout, kSsoAttempts};
    call.head.headers.Add("Host", HostHeader(login_.oidc.server));
    call.head.headers.Add("Content-Type", "application/json");
    call.body = WriteSsoRenewalJson(*token);
    return call;
  }

  CredentialAction OnRenewal(const CredentialInput& answer, absl::Time now) {
    constexpr std::string_view kWho = "the login has expired, and the SSO OIDC service, which renews it,";
    if (MayPass(answer)) return RefusedBy(kWho, answer, "check sso_region and the network");
    if (answer.http_status != 200) {
      // Another process may have renewed it just now, and made this one's refresh token useless.
      refused_ = RefusedBy(kWho, answer, Remedy());
      stage_ = Stage::kFile;
      return ReadFileAction{path_};
    }
    absl::StatusOr<RenewedSsoToken> renewed = RenewSsoTokenJson(file_, answer.text, now);
    if (!renewed.ok()) {
      return absl::UnauthenticatedError(
          fmt::format("the answer of the SSO OIDC service: {}; {}", ToStd(renewed.status().message()), Remedy()));
    }
    token_ = std::move(renewed->access_token);
    stage_ = Stage::kKeeping;
    return WriteFileAction{path_, std::move(renewed->file)};
  }

  CredentialAction AskPortal() {
    stage_ = Stage::kPortal;
    CallAction call{login_.portal.server, {"GET", "", {}}, "", kSsoTimeout, kSsoAttempts};
    call.head.target =
        fmt::format("{}/federation/credentials?role_name={}&account_id={}", login_.portal.base_path,
                    UriEncode(login_.role_name, /*keep_slash=*/false), UriEncode(login_.account_id, false));
    call.head.headers.Add("Host", HostHeader(login_.portal.server));
    call.head.headers.Add("x-amz-sso_bearer_token", token_);
    return call;
  }

  CredentialAction OnPortal(const CredentialInput& answer) {
    if (MayPass(answer)) return RefusedBy("the SSO portal", answer, "check sso_region and the network");
    if (answer.http_status == 401) return RefusedBy("the SSO portal", answer, Remedy());
    if (answer.http_status != 200)
      return RefusedBy("the SSO portal", answer, "check sso_account_id, sso_role_name and sso_region of the profile");
    absl::StatusOr<ExpiringCredentials> credentials = ParseSsoRoleJson(answer.text);
    if (credentials.ok()) return *std::move(credentials);
    return absl::UnavailableError(
        fmt::format("the SSO portal's answer: {}; check sso_region", ToStd(credentials.status().message())));
  }

  const SsoLogin login_;
  std::string path_;
  Stage stage_ = Stage::kFile;
  std::string file_;                     // what it contained, to be renewed
  std::string token_;                    // for the portal
  std::optional<absl::Status> refused_;  // why it was not renewed
};

}  // namespace

std::unique_ptr<CredentialSource> SsoSource(SsoLogin login) {
  return std::make_unique<Sso>(std::move(login));
}

}  // namespace millrace
