#include "diagnose/s3_settings.h"

#include <fmt/format.h>

#include <memory>

#include "aws/credential_chain.h"
#include "s3/config.h"

namespace millrace {

namespace {

std::string Abbreviated(const std::string& access_key) {
  if (access_key.size() <= 8) return access_key.substr(0, 4) + "...";
  return fmt::format("{}...{}", access_key.substr(0, 4), access_key.substr(access_key.size() - 4));
}

// Returns the place from which credentials will be fetched; "" if there is none.
std::string SourceOfCredentials(const S3Config& config, const AwsSettings& settings) {
  if (config.anonymous || config.credential_environment == nullptr) return {};
  const absl::StatusOr<std::unique_ptr<CredentialSource>> source = FindCredentialSource(settings);
  return source.ok() ? (*source)->Name() : std::string();
}

}  // namespace

ExplainedSettings ExplainSettings() {
  ExplainedSettings explained{
      .config = LoadS3Config(), .endpoint_from = {}, .region_from = {}, .credentials_from = {}, .access_key = {}};
  const absl::StatusOr<AwsSettings> settings = AwsSettings::Load(ProcessEnvironment());
  if (!explained.config.ok() || !settings.ok()) return explained;
  explained.endpoint_from = settings->OriginOfServiceUrl("s3");
  explained.region_from = settings->Origin({"AWS_REGION", "AWS_DEFAULT_REGION"}, "region");
  if (explained.config->credentials.anonymous()) {
    explained.credentials_from = SourceOfCredentials(*explained.config, *settings);
    return explained;
  }
  explained.credentials_from = settings->Origin({"AWS_ACCESS_KEY_ID"}, "aws_access_key_id");
  explained.access_key = Abbreviated(explained.config->credentials.access_key);
  return explained;
}

}  // namespace millrace
