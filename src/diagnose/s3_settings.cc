#include "diagnose/s3_settings.h"

#include <fmt/format.h>

#include <initializer_list>

#include "base/file_text.h"
#include "base/process.h"
#include "s3/config.h"
#include "s3/credential_chain.h"

namespace millrace {

namespace {

std::string ProfileFile(const std::string& variable, std::string_view name) {
  std::string path = EnvironmentValue(variable);
  if (path.empty() && !EnvironmentValue("HOME").empty())
    path = fmt::format("{}/.aws/{}", EnvironmentValue("HOME"), name);
  return path;
}

// Where a setting of the profile stands; "" when nowhere. What is broken is told by LoadS3Config.
std::string FromProfile(const std::string& key) {
  const std::string wanted = EnvironmentValue("AWS_PROFILE");
  const std::string name = wanted.empty() ? "default" : wanted;
  for (const std::string& path :
       {ProfileFile("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ProfileFile("AWS_CONFIG_FILE", "config")}) {
    const absl::StatusOr<Profiles> profiles = ParseProfiles(ReadFileText(path).value_or(""));
    if (!profiles.ok()) continue;
    const auto profile = profiles->profiles.find(name);
    if (profile == profiles->profiles.end()) continue;
    const auto setting = profile->second.find(key);
    if (setting != profile->second.end() && !setting->second.empty()) {
      return fmt::format("the profile '{}' in {}", name, path);
    }
  }
  return {};
}

std::string From(std::initializer_list<const char*> variables, const std::string& key) {
  for (const char* name : variables) {
    if (!EnvironmentValue(name).empty()) return name;
  }
  return FromProfile(key);
}

std::string Abbreviated(const std::string& access_key) {
  if (access_key.size() <= 8) return access_key.substr(0, 4) + "...";
  return fmt::format("{}...{}", access_key.substr(0, 4), access_key.substr(access_key.size() - 4));
}

// Where credentials will be fetched from; "" when nowhere.
std::string SourceOfCredentials(const S3Config& config) {
  if (config.anonymous || config.credential_environment == nullptr) return {};
  const absl::StatusOr<AwsSettings> settings = AwsSettings::Load(*config.credential_environment);
  if (!settings.ok()) return {};
  const absl::StatusOr<std::unique_ptr<CredentialSource>> source = FindCredentialSource(*settings);
  return source.ok() ? (*source)->Name() : std::string();
}

}  // namespace

ExplainedSettings ExplainSettings() {
  ExplainedSettings settings{.config = LoadS3Config(),
                             .endpoint_from = From({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, "endpoint_url"),
                             .region_from = From({"AWS_REGION", "AWS_DEFAULT_REGION"}, "region"),
                             .credentials_from = {},
                             .access_key = {}};
  if (!settings.config.ok()) return settings;
  if (settings.config->credentials.anonymous()) {
    settings.credentials_from = SourceOfCredentials(*settings.config);
    return settings;
  }
  settings.credentials_from = From({"AWS_ACCESS_KEY_ID"}, "aws_access_key_id");
  settings.access_key = Abbreviated(settings.config->credentials.access_key);
  return settings;
}

}  // namespace millrace
