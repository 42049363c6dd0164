#include "aws/local_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "aws/imds.h"
#include "aws/settings.h"
#include "base/crypto.h"

namespace millrace {

namespace {

constexpr absl::Duration kNearTimeout = absl::Seconds(2);
constexpr int kImdsAttempts = 4;
constexpr absl::Duration kExtension = absl::Minutes(10);

/// Returns the digest of a text that may hold a secret.
std::string DigestOf(std::string_view text) {
  constexpr size_t kDigits = 32;
  return HexEncode(Sha256(AsBytes(text))).substr(0, kDigits);
}

// Names the holder of a token: by the subject of a JWT, which is not verified here, or by a digest. The subject stays
// when the token is renewed. "" without a token.
std::string SubjectOf(std::string_view token) {
  const std::string text(ToStd(absl::StripAsciiWhitespace(ToAbsl(token))));
  if (text.empty()) return "";
  const std::vector<std::string> parts = absl::StrSplit(text, '.');
  std::string payload;
  if (parts.size() == 3 && absl::WebSafeBase64Unescape(parts[1], &payload)) {
    // It must not throw: exceptions of nlohmann quote the document.
    const auto claims = nlohmann::json::parse(payload, nullptr, /*allow_exceptions=*/false);
    if (claims.is_object() && claims.contains("sub") && claims["sub"].is_string()) {
      return fmt::format("subject {}", claims["sub"].get<std::string>());
    }
  }
  return fmt::format("token {}", DigestOf(text));
}

class Static final : public CredentialSource {
 public:
  Static(std::string name, Credentials keys) : name_(std::move(name)), keys_(std::move(keys)) {}
  std::string Name() const override { return name_; }
  std::string Principal(const AwsEnvironment&) const override { return fmt::format("key {}", keys_.access_key); }
  CredentialAction Begin(absl::Time) override { return ExpiringCredentials{keys_, absl::InfiniteFuture()}; }
  CredentialAction OnInput(CredentialInput, absl::Time) override { return absl::InternalError("nothing was asked"); }

 private:
  const std::string name_;
  const Credentials keys_;
};

class CommandSource final : public CredentialSource {
 public:
  CommandSource(std::string profile, std::string command)
      : profile_(std::move(profile)), command_(std::move(command)) {}
  std::string Name() const override { return fmt::format("credential_process of profile '{}'", profile_); }
  // Another file of settings may have another command for the same profile.
  std::string Principal(const AwsEnvironment&) const override {
    return fmt::format("profile {} {}", profile_, DigestOf(command_));
  }
  CredentialAction Begin(absl::Time) override { return RunProcessAction{command_}; }

  CredentialAction OnInput(CredentialInput input, absl::Time now) override {
    constexpr std::string_view kRemedy = "run it by hand to see why";
    if (!input.status.ok())
      return absl::UnauthenticatedError(fmt::format("it {}; {}", ToStd(input.status.message()), kRemedy));
    absl::StatusOr<ExpiringCredentials> credentials = ParseProcessJson(input.text);
    if (!credentials.ok()) {
      return absl::UnauthenticatedError(
          fmt::format("its output: {}; {}", ToStd(credentials.status().message()), kRemedy));
    }
    if (credentials->expires <= now) return absl::UnauthenticatedError("it printed credentials that have expired");
    return *std::move(credentials);
  }

 private:
  const std::string profile_;
  const std::string command_;
};

class Container final : public CredentialSource {
 public:
  explicit Container(ContainerEndpoint endpoint) : endpoint_(std::move(endpoint)) {}
  std::string Name() const override {
    return fmt::format("the container's endpoint ({})", HostHeader(endpoint_.server));
  }
  // One endpoint serves many: it distinguishes them by their tokens. On ECS, the path is a secret.
  std::string Principal(const AwsEnvironment& environment) const override {
    std::string token = endpoint_.token;
    if (!endpoint_.token_file.empty()) token = environment.read_file(endpoint_.token_file).value_or("");
    return fmt::format("container {} {} {}", HostHeader(endpoint_.server), DigestOf(endpoint_.target),
                       SubjectOf(token));
  }

  CredentialAction Begin(absl::Time) override {
    asked_ = false;
    if (!endpoint_.token_file.empty()) return ReadFileAction{endpoint_.token_file};
    return Call(endpoint_.token);
  }

  CredentialAction OnInput(CredentialInput input, absl::Time) override {
    constexpr std::string_view kRemedy =
        "check AWS_CONTAINER_CREDENTIALS_FULL_URI or _RELATIVE_URI, and the role of the task or pod";
    if (!asked_) {
      absl::StatusOr<std::string> token =
          TokenOf(input, "the token file (AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE)", CheckToken);
      if (!token.ok()) return std::move(token).status();
      return Call(*std::move(token));
    }
    if (!input.status.ok() || input.http_status != 200) return RefusedBy("it", input, kRemedy);
    absl::StatusOr<ExpiringCredentials> credentials = ParseMetadataJson(input.text);
    if (credentials.ok()) return *std::move(credentials);
    return absl::UnavailableError(fmt::format("its answer: {}; {}", ToStd(credentials.status().message()), kRemedy));
  }

 private:
  CredentialAction Call(std::string token) {
    asked_ = true;
    if (absl::Status status = CheckToken(token, "AWS_CONTAINER_AUTHORIZATION_TOKEN"); !status.ok()) return status;
    CallAction call{endpoint_.server, {"GET", endpoint_.target, {}}, "", kNearTimeout, kImdsAttempts};
    call.head.headers.Add("Host", HostHeader(endpoint_.server));
    call.head.headers.Add("Accept", "application/json");
    if (!token.empty()) call.head.headers.Add("Authorization", std::move(token));
    return call;
  }

  const ContainerEndpoint endpoint_;
  bool asked_ = false;
};

class Instance final : public CredentialSource {
 public:
  Instance(EndpointUrl service, InstanceLimits limits) : session_(std::move(service)), limits_(limits) {}
  std::string Name() const override {
    return fmt::format("the instance metadata service ({})", HostHeader(session_.service().server));
  }
  std::string Principal(const AwsEnvironment&) const override { return "instance"; }

  CredentialAction Begin(absl::Time) override {
    stage_ = Stage::kToken;
    // If there is no such service, nothing answers, so the limits are low.
    return Call(session_.TokenRequest(), limits_.timeout.value_or(absl::Seconds(1)), limits_.attempts.value_or(2));
  }

  CredentialAction OnInput(CredentialInput input, absl::Time now) override {
    if (stage_ == Stage::kToken && !input.status.ok()) return absl::NotFoundError("it does not answer");
    if (!input.status.ok() || input.http_status != 200) return Refused(input);
    switch (stage_) {
      case Stage::kToken:
        if (absl::Status taken = session_.TakeToken(input.text, {}, now); !taken.ok()) return taken;
        stage_ = Stage::kRole;
        return Read(kRoles);
      case Stage::kRole: {
        // Only the first line counts; an instance has one role.
        const std::string role = input.text.substr(0, input.text.find_first_of("\r\n"));
        if (role.empty()) return absl::UnauthenticatedError("this instance has no role; attach an instance profile");
        stage_ = Stage::kKeys;
        return Read(fmt::format("{}{}", kRoles, UriEncode(role, /*keep_slash=*/false)));
      }
      case Stage::kKeys:
        break;
    }
    absl::StatusOr<ExpiringCredentials> credentials = ParseMetadataJson(input.text);
    // The service hands out the last credentials during an outage of its own, and the store may take them.
    if (credentials.ok() && credentials->expires <= now) credentials->expires = now + kExtension;
    if (credentials.ok()) return *std::move(credentials);
    return absl::UnavailableError(
        fmt::format("its answer: {}; check the instance profile's role", ToStd(credentials.status().message())));
  }

 private:
  enum class Stage { kToken, kRole, kKeys };
  static constexpr std::string_view kRoles = "/latest/meta-data/iam/security-credentials/";

  static CallAction Call(TextRequest request, absl::Duration timeout, int attempts) {
    return {std::move(request.endpoint), std::move(request.head), "", timeout, attempts};
  }

  CallAction Read(std::string_view path) const {
    return Call(session_.ReadRequest(path), limits_.timeout.value_or(kNearTimeout),
                limits_.attempts.value_or(kImdsAttempts));
  }

  absl::Status Refused(const CredentialInput& input) const {
    const bool no_role = stage_ == Stage::kRole && input.http_status == 404;
    if (no_role) return absl::UnauthenticatedError("this instance has no role; attach an instance profile");
    return RefusedBy("it", input,
                     "nothing else gives credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE. "
                     "If the role of this instance is meant, check that the instance has one and allows IMDSv2, with "
                     "a hop limit of 2 for containers");
  }

  ImdsSession session_;
  const InstanceLimits limits_;
  Stage stage_ = Stage::kToken;
};

/// Returns true for this machine, and the addresses at which ECS and EKS give credentials.
bool MayGetTokenInClear(const std::string& host) {
  constexpr std::array<std::string_view, 3> kHosts = {"169.254.170.2", "169.254.170.23", "fd00:ec2::23"};
  return IsLoopback(host) || std::find(kHosts.begin(), kHosts.end(), host) != kHosts.end();
}

}  // namespace

std::unique_ptr<CredentialSource> StaticSource(std::string name, Credentials keys) {
  return std::make_unique<Static>(std::move(name), std::move(keys));
}

std::unique_ptr<CredentialSource> ProcessSource(std::string profile, std::string command) {
  return std::make_unique<CommandSource>(std::move(profile), std::move(command));
}

absl::StatusOr<ContainerEndpoint> ParseContainerUri(std::string_view relative, std::string_view full) {
  const std::string url = relative.empty() ? std::string(full) : fmt::format("http://169.254.170.2{}", relative);
  const std::string_view name =
      relative.empty() ? "AWS_CONTAINER_CREDENTIALS_FULL_URI" : "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
  const auto refuse = [&](std::string_view why) { return absl::InvalidArgumentError(fmt::format("{} {}", name, why)); };
  if (!relative.empty() && !relative.starts_with('/')) return refuse("does not begin with '/'");
  if (std::any_of(url.begin(), url.end(), [](char c) { return c <= ' ' || c > '~' || c == '#'; }))
    return refuse("contains a space, a '#' or a control character");
  const size_t scheme = url.find("://");
  const size_t path = scheme == std::string::npos ? scheme : url.find_first_of("/?", scheme + 3);
  // Its errors quote the URL; what follows the host may be secret.
  const absl::StatusOr<EndpointUrl> parsed = ParseEndpointUrl(url.substr(0, path));
  if (!parsed.ok()) return refuse("is not a URL of the form http[s]://host[:port]/path");
  if (!parsed->server.tls && !MayGetTokenInClear(parsed->server.host)) {
    return refuse(
        "must be https, or http to this machine, 169.254.170.2, 169.254.170.23 or [fd00:ec2::23]: credentials are not "
        "asked for in clear elsewhere");
  }
  ContainerEndpoint endpoint;
  endpoint.server = parsed->server;
  endpoint.server.direct = true;
  if (path == std::string::npos || url[path] == '?') endpoint.target.push_back('/');
  if (path != std::string::npos) endpoint.target.append(url, path);
  return endpoint;
}

std::unique_ptr<CredentialSource> ContainerSource(ContainerEndpoint endpoint) {
  return std::make_unique<Container>(std::move(endpoint));
}

std::unique_ptr<CredentialSource> InstanceSource(EndpointUrl service, InstanceLimits limits) {
  return std::make_unique<Instance>(std::move(service), limits);
}

}  // namespace millrace
