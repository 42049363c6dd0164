#include "aws/credential_chain.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "aws/local_source.h"
#include "aws/sso_source.h"
#include "aws/sts_source.h"
#include "base/shell_word.h"

namespace millrace {

namespace {

using Source = std::unique_ptr<CredentialSource>;

std::string Value(const AwsSection& section, const std::string& key) {
  const auto at = section.find(key);
  return at == section.end() ? std::string() : at->second;
}

// These are the names of both keys in their source.
struct KeyNames {
  std::string_view access = "AWS_ACCESS_KEY_ID";
  std::string_view secret = "AWS_SECRET_ACCESS_KEY";
};
constexpr KeyNames kNamesInFile = {"aws_access_key_id in the same file", "aws_secret_access_key in the same file"};

absl::StatusOr<std::optional<Credentials>> WholeKeys(Credentials keys, const KeyNames& names = {}) {
  if (keys.access_key.empty() != keys.secret_key.empty()) {
    return absl::InvalidArgumentError(fmt::format("only {} is set; set {} as well",
                                                  keys.access_key.empty() ? "the secret key" : "the access key",
                                                  keys.access_key.empty() ? names.access : names.secret));
  }
  if (keys.access_key.empty()) return std::nullopt;
  for (const std::string* value : {&keys.access_key, &keys.secret_key, &keys.session_token})
    RETURN_IF_ERROR(CheckSecret(*value, "an AWS key"));
  return keys;
}

std::string Region(const AwsSettings& settings) {
  const std::string region = settings.First({"AWS_REGION", "AWS_DEFAULT_REGION"}, "region");
  return region.empty() ? "us-east-1" : region;
}

absl::StatusOr<StsService> Sts(const AwsSettings& settings) {
  ASSIGN_OR_RETURN(const bool fips, settings.Flag("AWS_USE_FIPS_ENDPOINT", "use_fips_endpoint"));
  ASSIGN_OR_RETURN(const std::string url, settings.ServiceUrl("sts"));
  return StsServiceOf(Region(settings), url, fips);
}

absl::StatusOr<Source> ContainerOf(const AwsSettings& settings) {
  ASSIGN_OR_RETURN(ContainerEndpoint endpoint,
                   ParseContainerUri(settings.Variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
                                     settings.Variable("AWS_CONTAINER_CREDENTIALS_FULL_URI")));
  endpoint.token = settings.Variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  endpoint.token_file = settings.Variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  return ContainerSource(std::move(endpoint));
}

/// Returns a number from 1 to 1,000; nullopt if it is not set.
absl::StatusOr<std::optional<int>> Number(const AwsSettings& settings, const std::string& variable,
                                          const std::string& key) {
  constexpr int kMost = 1000;
  const std::string text = settings.First({variable}, key);
  if (text.empty()) return std::nullopt;
  int number = 0;
  if (absl::SimpleAtoi(text, &number) && number >= 1 && number <= kMost) return number;
  return absl::InvalidArgumentError(fmt::format(
      "{} or the profile's {} is '{}'; it must be a whole number from 1 to {}", variable, key, text, kMost));
}

absl::StatusOr<Source> InstanceOf(const AwsSettings& settings) {
  absl::StatusOr<std::optional<EndpointUrl>> service = InstanceMetadataService(settings);
  if (!service.ok()) return std::move(service).status();
  if (!*service) return absl::UnauthenticatedError(kNoCredentials.data());
  InstanceLimits limits;
  ASSIGN_OR_RETURN(const std::optional<int> seconds,
                   Number(settings, "AWS_METADATA_SERVICE_TIMEOUT", "metadata_service_timeout"));
  if (seconds) limits.timeout = absl::Seconds(*seconds);
  ASSIGN_OR_RETURN(limits.attempts,
                   Number(settings, "AWS_METADATA_SERVICE_NUM_ATTEMPTS", "metadata_service_num_attempts"));
  return InstanceSource(**std::move(service), limits);
}

absl::StatusOr<Source> WebIdentityOf(const AwsSettings& settings) {
  AwsRole role;
  role.arn = settings.Variable("AWS_ROLE_ARN");
  if (role.arn.empty()) {
    return absl::InvalidArgumentError("AWS_WEB_IDENTITY_TOKEN_FILE is set without AWS_ROLE_ARN; set both, or neither");
  }
  if (const std::string name = settings.Variable("AWS_ROLE_SESSION_NAME"); !name.empty()) role.session_name = name;
  ASSIGN_OR_RETURN(StsService sts, Sts(settings));
  return WebIdentitySource(std::move(sts), std::move(role), settings.Variable("AWS_WEB_IDENTITY_TOKEN_FILE"));
}

/// Holds the sources of one profile and of those that it refers to.
class ProfileChain {
 public:
  explicit ProfileChain(const AwsSettings& settings) : settings_(settings) {}

  /// Returns nullptr when the profile says nothing of credentials.
  absl::StatusOr<Source> Of(const std::string& name) {
    const AwsSection* const profile = settings_.FindProfile(name);
    if (profile == nullptr) return nullptr;
    absl::StatusOr<Source> source = Of(name, *profile);
    if (!source.ok()) return Annotate(source.status(), fmt::format("profile '{}'", name));
    return source;
  }

 private:
  absl::StatusOr<Source> Of(const std::string& name, const AwsSection& profile) {
    if (!Value(profile, "role_arn").empty()) return RoleOf(name, profile);
    return WithoutRole(name, profile);
  }

  absl::StatusOr<Source> WithoutRole(const std::string& name, const AwsSection& profile) {
    std::string token = Value(profile, "aws_security_token");  // its name of old
    if (token.empty()) token = Value(profile, "aws_session_token");
    ASSIGN_OR_RETURN(
        std::optional<Credentials> keys,
        WholeKeys({Value(profile, "aws_access_key_id"), Value(profile, "aws_secret_access_key"), token}, kNamesInFile));
    const auto has = [&profile](const char* key) { return !Value(profile, key).empty(); };
    const bool has_sso = has("sso_session") || has("sso_start_url");
    // SSO comes before keys if the profile names its account or role, as in botocore.
    if (has_sso && (has("sso_account_id") || has("sso_role_name"))) return SsoOf(name, profile);
    if (keys) return StaticSource(fmt::format("profile '{}'", name), *std::move(keys));
    if (std::string command = Value(profile, "credential_process"); !command.empty())
      return ProcessSource(name, std::move(command));
    if (has_sso) return SsoOf(name, profile);
    if (has("login_session")) {
      return absl::InvalidArgumentError(
          fmt::format("its login_session (`aws login`) is not read here; let the AWS CLI hand on the keys: "
                      "credential_process = aws "
                      "configure export-credentials --profile {} --format process, in a profile of its own",
                      ShellWord(name)));
    }
    return nullptr;
  }

  absl::StatusOr<Source> RoleOf(const std::string& name, const AwsSection& profile) {
    AwsRole role;
    role.arn = Value(profile, "role_arn");
    role.external_id = Value(profile, "external_id");
    role.duration_seconds = Value(profile, "duration_seconds");
    if (const std::string session = Value(profile, "role_session_name"); !session.empty()) role.session_name = session;
    if (!Value(profile, "mfa_serial").empty()) {
      return absl::InvalidArgumentError(
          "its mfa_serial cannot be asked for here; make temporary credentials with the AWS CLI, or use a "
          "credential_process");
    }
    const std::string token_file = Value(profile, "web_identity_token_file");
    const std::string source_profile = Value(profile, "source_profile");
    const std::string credential_source = Value(profile, "credential_source");
    if (!token_file.empty() + !source_profile.empty() + !credential_source.empty() != 1) {
      return absl::InvalidArgumentError(
          "its role_arn needs one of source_profile, credential_source and web_identity_token_file");
    }
    ASSIGN_OR_RETURN(StsService sts, Sts(settings_));
    if (!token_file.empty()) return WebIdentitySource(std::move(sts), std::move(role), token_file);
    ASSIGN_OR_RETURN(Source base, credential_source.empty() ? SourceProfile(name, profile, source_profile)
                                                            : NamedSource(credential_source));
    return AssumeRoleSource(std::move(sts), std::move(role), std::move(base));
  }

  absl::StatusOr<Source> SourceProfile(const std::string& name, const AwsSection& profile, const std::string& base) {
    if (!visited_.insert(name).second) {
      return absl::InvalidArgumentError(
          fmt::format("source_profile leads back to '{}'; end the chain with a profile that has credentials", name));
    }
    // A profile may be its own source: then its keys are meant.
    absl::StatusOr<Source> source = base == name ? WithoutRole(name, profile) : Of(base);
    if (source.ok() && *source == nullptr) {
      return absl::InvalidArgumentError(
          fmt::format("its source_profile '{}' does not exist or has no credentials", base));
    }
    return source;
  }

  absl::StatusOr<Source> NamedSource(const std::string& name) {
    if (name == "Ec2InstanceMetadata") return InstanceOf(settings_);
    if (name == "EcsContainer") return ContainerOf(settings_);
    if (name == "Environment") {
      ASSIGN_OR_RETURN(std::optional<Credentials> keys, EnvironmentKeys(settings_));
      if (!keys)
        return absl::InvalidArgumentError("its credential_source is Environment, but AWS_ACCESS_KEY_ID is not set");
      return StaticSource("the environment", *std::move(keys));
    }
    return absl::InvalidArgumentError(fmt::format(
        "its credential_source is '{}'; it must be Environment, Ec2InstanceMetadata or EcsContainer", name));
  }

  absl::StatusOr<Source> SsoOf(const std::string& name, const AwsSection& profile) {
    SsoLogin login;
    login.profile = name;
    login.session = Value(profile, "sso_session");
    login.account_id = Value(profile, "sso_account_id");
    login.role_name = Value(profile, "sso_role_name");
    const AwsSection* const section = login.session.empty() ? &profile : settings_.FindSsoSession(login.session);
    if (section == nullptr)
      return absl::InvalidArgumentError(fmt::format("there is no section [sso-session {}]", login.session));
    login.start_url = Value(*section, "sso_start_url");
    const std::string region = Value(*section, "sso_region");
    if (login.account_id.empty() || login.role_name.empty() || !PlausibleRegion(region)) {
      return absl::InvalidArgumentError(
          "SSO needs sso_region, sso_account_id and sso_role_name; run `aws configure sso`");
    }
    const std::string home = settings_.Variable("HOME");
    if (home.empty()) return absl::InvalidArgumentError("SSO needs HOME, below which the AWS CLI keeps its token");
    login.cache_folder = home + "/.aws/sso/cache";
    ASSIGN_OR_RETURN(const std::string portal, settings_.ServiceUrl("sso"));
    ASSIGN_OR_RETURN(login.portal, ServiceEndpoint("portal.sso", region, portal, "AWS_ENDPOINT_URL_SSO"));
    ASSIGN_OR_RETURN(const std::string oidc, settings_.ServiceUrl("sso oidc"));
    ASSIGN_OR_RETURN(login.oidc, ServiceEndpoint("oidc", region, oidc, "AWS_ENDPOINT_URL_SSO_OIDC"));
    return SsoSource(std::move(login));
  }

  const AwsSettings& settings_;
  std::set<std::string> visited_;
};

}  // namespace

absl::StatusOr<std::optional<Credentials>> EnvironmentKeys(const AwsSettings& settings) {
  std::string token = settings.Variable("AWS_SECURITY_TOKEN");  // its name of old
  if (token.empty()) token = settings.Variable("AWS_SESSION_TOKEN");
  return WholeKeys(
      {settings.Variable("AWS_ACCESS_KEY_ID"), settings.Variable("AWS_SECRET_ACCESS_KEY"), std::move(token)});
}

absl::StatusOr<std::optional<EndpointUrl>> InstanceMetadataService(const AwsSettings& settings) {
  if (absl::AsciiStrToLower(settings.Variable("AWS_EC2_METADATA_DISABLED")) == "true") return std::nullopt;
  std::string url = settings.First({"AWS_EC2_METADATA_SERVICE_ENDPOINT"}, "ec2_metadata_service_endpoint");
  if (url.empty()) {
    const std::string mode =
        settings.First({"AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"}, "ec2_metadata_service_endpoint_mode");
    url = absl::AsciiStrToLower(mode) == "ipv6" ? "http://[fd00:ec2::254]" : "http://169.254.169.254";
  }
  absl::StatusOr<EndpointUrl> endpoint = ParseEndpointUrl(url);
  if (!endpoint.ok()) return Annotate(endpoint.status(), "AWS_EC2_METADATA_SERVICE_ENDPOINT");
  endpoint->server.direct = true;
  return *std::move(endpoint);
}

absl::StatusOr<std::unique_ptr<CredentialSource>> FindCredentialSource(const AwsSettings& settings) {
  ASSIGN_OR_RETURN(std::optional<Credentials> keys, EnvironmentKeys(settings));
  if (keys) return StaticSource("the environment", *std::move(keys));
  // A role of the profile comes before the web identity of the environment, as in botocore.
  const bool has_role = !settings.Profile("role_arn").empty() && settings.Profile("web_identity_token_file").empty();
  if (!has_role && !settings.Variable("AWS_WEB_IDENTITY_TOKEN_FILE").empty()) return WebIdentityOf(settings);
  ASSIGN_OR_RETURN(Source profile, ProfileChain(settings).Of(settings.profile_name()));
  if (profile != nullptr) return profile;
  const bool container = !settings.Variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").empty() ||
                         !settings.Variable("AWS_CONTAINER_CREDENTIALS_FULL_URI").empty();
  return container ? ContainerOf(settings) : InstanceOf(settings);
}

}  // namespace millrace
