#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "s3/client.h"

namespace millrace {

/// Reads the settings of S3 as the AWS tools do. The environment wins over profile files:
///
///   AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL      else `endpoint_url` of the profile; else AWS
///   AWS_REGION, AWS_DEFAULT_REGION             else `region`; else us-east-1
///   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN    else the profile's static keys
///   AWS_CA_BUNDLE                              else `ca_bundle`
///   AWS_MAX_ATTEMPTS                           else `max_attempts`: requests in all for one that fails, 1 to 1000
///   -                                          `addressing_style` below the profile's `s3 =`: auto, virtual or path
///   AWS_PROFILE                                the profile, else "default"
///   AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE    else ~/.aws/credentials and ~/.aws/config
///   MILLRACE_S3_ANONYMOUS=1                    no credentials: unsigned requests
///
/// That no credentials are found is no error here; the first request fails with the remedy. InvalidArgument for
/// settings that contradict each other or cannot be read (a profile that does not exist, a key without its secret, a
/// broken URL).
absl::StatusOr<S3Config> LoadS3Config();

/// Where LoadS3Config reads from, for tests.
struct S3Environment {
  std::function<std::optional<std::string>(const std::string& name)> variable;
  std::function<absl::StatusOr<std::string>(const std::string& path)> read_file;  // NotFound when there is none
};
absl::StatusOr<S3Config> LoadS3Config(const S3Environment& environment);

/// The sections of a profile file, by profile: "[name]", or "[profile name]" as in ~/.aws/config; other kinds of
/// section are skipped. Settings that are indented further than one without a value above them
/// ("s3 =") get its name in front: "s3.addressing_style"; other such lines are skipped. Names of settings are in lower
/// case. InvalidArgument, with the line, for what is neither a section, a setting nor a comment. Pure; fuzzed.
using Profiles = std::map<std::string, std::map<std::string, std::string>>;
absl::StatusOr<Profiles> ParseProfiles(std::string_view text);

}  // namespace millrace
