#include "s3/config.h"

#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "aws/credential_chain.h"
#include "aws/endpoint.h"
#include "s3/address.h"
#include "s3/checksum.h"

namespace millrace {

namespace {

absl::StatusOr<std::optional<int>> FindAttempts(const AwsSettings& settings) {
  constexpr int kMaxAttempts = 1000;
  const std::string text = settings.First({"AWS_MAX_ATTEMPTS"}, "max_attempts");
  if (text.empty()) return std::nullopt;
  int attempts = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), attempts);
  if (error != std::errc() || end != text.data() + text.size() || attempts < 1 || attempts > kMaxAttempts) {
    return absl::InvalidArgumentError(
        fmt::format("AWS_MAX_ATTEMPTS or the profile's max_attempts is '{}'; it must be a whole number from 1 to {}",
                    text, kMaxAttempts));
  }
  return attempts;
}

absl::StatusOr<S3Addressing> FindAddressing(const AwsSettings& settings) {
  const std::string style = settings.First({"MILLRACE_S3_ADDRESSING_STYLE"}, "s3.addressing_style");
  if (style.empty() || style == "auto") return S3Addressing::kAuto;
  if (style == "virtual") return S3Addressing::kVirtual;
  if (style == "path") return S3Addressing::kPath;
  return absl::InvalidArgumentError(
      fmt::format("MILLRACE_S3_ADDRESSING_STYLE or the profile's addressing_style (in 's3 =') is '{}'; it must be "
                  "auto, virtual or path",
                  style));
}

// Returns whether checksums are used wherever they are supported; no operation of ours requires one.
absl::StatusOr<bool> FindChecksums(const AwsSettings& settings, const char* variable, const std::string& in_profile) {
  const std::string when = absl::AsciiStrToLower(ToAbsl(settings.First({variable}, in_profile)));
  if (when.empty() || when == "when_supported") return true;
  if (when == "when_required") return false;
  return absl::InvalidArgumentError(fmt::format(
      "{} or the profile's {} is '{}'; it must be when_supported or when_required", variable, in_profile, when));
}

absl::StatusOr<AwsEndpointKind> FindEndpointKind(const AwsSettings& settings, const std::string& custom_url) {
  AwsEndpointKind kind;
  ASSIGN_OR_RETURN(kind.dual_stack, settings.Flag("AWS_USE_DUALSTACK_ENDPOINT", "use_dualstack_endpoint"));
  // The older setting is in the profile, for S3 alone.
  if (!kind.dual_stack && settings.Variable("AWS_USE_DUALSTACK_ENDPOINT").empty()) {
    ASSIGN_OR_RETURN(kind.dual_stack, settings.Flag("AWS_USE_DUALSTACK_ENDPOINT", "s3.use_dualstack_endpoint"));
  }
  ASSIGN_OR_RETURN(kind.fips, settings.Flag("AWS_USE_FIPS_ENDPOINT", "use_fips_endpoint"));
  if (custom_url.empty() || (!kind.dual_stack && !kind.fips)) return kind;
  return absl::InvalidArgumentError(
      fmt::format("{} does not go with an endpoint of one's own (AWS_ENDPOINT_URL or endpoint_url); unset one of them",
                  kind.fips ? "AWS_USE_FIPS_ENDPOINT" : "AWS_USE_DUALSTACK_ENDPOINT"));
}

absl::StatusOr<ObjectChecksum::Kind> FindUploadChecksum(const AwsSettings& settings) {
  const std::string name = absl::AsciiStrToUpper(settings.Variable("MILLRACE_S3_CHECKSUM_ALGORITHM"));
  for (const ObjectChecksum::Kind kind : {ObjectChecksum::Kind::kCrc32c, ObjectChecksum::Kind::kCrc64Nvme}) {
    if (name == ChecksumKindName(kind)) return kind;
  }
  if (name.empty()) return ObjectChecksum::Kind::kCrc32c;
  return absl::InvalidArgumentError(
      fmt::format("MILLRACE_S3_CHECKSUM_ALGORITHM is '{}'; it must be CRC32C or CRC64NVME", name));
}

absl::Status FindEncryption(const AwsSettings& settings, S3Config& config) {
  config.encryption = settings.Variable("MILLRACE_S3_SSE");
  config.encryption_key = settings.Variable("MILLRACE_S3_SSE_KMS_KEY_ID");
  if (config.encryption.empty() && !config.encryption_key.empty()) config.encryption = "aws:kms";
  const bool by_kms = config.encryption == "aws:kms" || config.encryption == "aws:kms:dsse";
  if (!by_kms && !config.encryption.empty() && config.encryption != "AES256") {
    return absl::InvalidArgumentError(
        fmt::format("MILLRACE_S3_SSE is '{}'; it must be aws:kms, aws:kms:dsse or AES256", config.encryption));
  }
  if (!by_kms && !config.encryption_key.empty()) {
    return absl::InvalidArgumentError(
        "MILLRACE_S3_SSE_KMS_KEY_ID needs MILLRACE_S3_SSE=aws:kms; unset it, or change MILLRACE_S3_SSE");
  }
  return absl::OkStatus();
}

bool IsSet(const AwsSettings& settings, const std::string& variable) {
  const std::string value = settings.Variable(variable);
  return !value.empty() && value != "0";
}

/// Finds out where credentials come from. Keys that need no request are taken at once, so that no request waits.
absl::Status FindCredentials(const AwsEnvironment& environment, const AwsSettings& settings, S3Config& config) {
  ASSIGN_OR_RETURN(std::optional<Credentials> keys, EnvironmentKeys(settings));
  if (keys) {
    // They never change: a process sees its environment as it was at its start.
    config.credentials = *std::move(keys);
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<CredentialSource>> source = FindCredentialSource(settings);
  // That there are none is said by the first request; a command may not need any.
  if (absl::IsUnauthenticated(source.status())) return absl::OkStatus();
  if (!source.ok()) return source.status();
  CredentialAction first = (*source)->Begin(absl::Now());
  if (auto* known = std::get_if<ExpiringCredentials>(&first)) config.credentials = std::move(known->keys);
  config.credential_environment = std::make_shared<const AwsEnvironment>(environment);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<S3Config> LoadS3Config(const AwsEnvironment& environment) {
  ASSIGN_OR_RETURN(const AwsSettings settings, AwsSettings::Load(environment));
  S3Config config;
  ASSIGN_OR_RETURN(config.endpoint_url, settings.ServiceUrl("s3"));
  if (!config.endpoint_url.empty()) RETURN_IF_ERROR(ParseEndpointUrl(config.endpoint_url).status());
  if (std::string region = settings.First({"AWS_REGION", "AWS_DEFAULT_REGION"}, "region"); !region.empty())
    config.region = std::move(region);
  if (!PlausibleRegion(config.region)) {
    return absl::InvalidArgumentError(
        fmt::format("the AWS region '{}' is not a region's name; check AWS_REGION, --region, or region= of a Dataset",
                    config.region));
  }
  config.ca_file = settings.First({"AWS_CA_BUNDLE"}, "ca_bundle");
  ASSIGN_OR_RETURN(config.proxies, HttpProxies::Read([&](const std::string& name) { return settings.Variable(name); }));
  ASSIGN_OR_RETURN(const std::optional<int> attempts, FindAttempts(settings));
  config.max_attempts = attempts.value_or(config.max_attempts);
  config.more_attempts_in_storms = !attempts;
  ASSIGN_OR_RETURN(config.addressing, FindAddressing(settings));
  ASSIGN_OR_RETURN(config.aws_endpoint, FindEndpointKind(settings, config.endpoint_url));
  if (!settings.First({"AWS_S3_USE_ARN_REGION"}, "s3.use_arn_region").empty()) {
    ASSIGN_OR_RETURN(config.use_arn_region, settings.Flag("AWS_S3_USE_ARN_REGION", "s3.use_arn_region"));
  }
  ASSIGN_OR_RETURN(config.upload_checksum, FindUploadChecksum(settings));
  ASSIGN_OR_RETURN(config.checksum_uploads,
                   FindChecksums(settings, "AWS_REQUEST_CHECKSUM_CALCULATION", "request_checksum_calculation"));
  ASSIGN_OR_RETURN(config.validate_downloads,
                   FindChecksums(settings, "AWS_RESPONSE_CHECKSUM_VALIDATION", "response_checksum_validation"));
  if (!settings.Profile("s3.payload_signing_enabled").empty()) {
    ASSIGN_OR_RETURN(config.sign_payloads, settings.Flag("", "s3.payload_signing_enabled"));
  }
  RETURN_IF_ERROR(FindEncryption(settings, config));
  config.anonymous = IsSet(settings, "MILLRACE_S3_ANONYMOUS");
  config.requester_pays = IsSet(settings, "MILLRACE_S3_REQUESTER_PAYS");
  if (config.anonymous && config.requester_pays) {
    return absl::InvalidArgumentError(
        "MILLRACE_S3_REQUESTER_PAYS needs credentials, to whose account requests are charged; unset it or "
        "MILLRACE_S3_ANONYMOUS");
  }
  if (config.anonymous) return config;
  RETURN_IF_ERROR(FindCredentials(environment, settings, config));
  return config;
}

absl::StatusOr<S3Config> LoadS3Config() {
  return LoadS3Config(ProcessEnvironment());
}

std::string S3Principal(const AwsEnvironment& environment) {
  const absl::StatusOr<AwsSettings> settings = AwsSettings::Load(environment);
  if (settings.ok() && IsSet(*settings, "MILLRACE_S3_ANONYMOUS")) return "";
  constexpr const char* kUnknown = "unknown";  // all requests fail
  if (!settings.ok()) return kUnknown;
  const absl::StatusOr<std::unique_ptr<CredentialSource>> source = FindCredentialSource(*settings);
  return source.ok() ? (*source)->Principal(environment) : kUnknown;
}

}  // namespace millrace
