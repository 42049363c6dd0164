#pragma once

#include <array>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "base/status.h"

/// Reads the settings of the AWS tools: environment variables and profile files.

namespace millrace {

/// The source of settings; a test gives its own. The functions may be called from any thread, while settings are loaded
/// and whenever credentials are fetched again.
struct AwsEnvironment {
  std::function<std::optional<std::string>(const std::string& name)> variable;
  std::function<absl::StatusOr<std::string>(const std::string& path)> read_file;  // NotFound if it does not exist
  // Replaces a file by one that only this user may read, whole. Null: nothing is written.
  std::function<absl::Status(const std::string& path, const std::string& contents)> write_file = {};
};

/// Returns the variables of the process as they are now, and its files. It is a copy, since it is not safe to read the
/// environment of a process while another thread changes it.
AwsEnvironment ProcessEnvironment();

/// Holds settings that a program gives by itself; "" leaves those of variables and profile files.
struct AwsChoice {
  std::string endpoint_url;  // of S3
  std::string profile;
  std::string region;

  bool operator==(const AwsChoice&) const = default;
  bool operator<(const AwsChoice& other) const {
    return std::tie(endpoint_url, profile, region) < std::tie(other.endpoint_url, other.profile, other.region);
  }
};

/// These are the variables of the identity that a profile replaces if a program names it, as with the AWS tools.
inline constexpr std::array<const char*, 7> kIdentityVariables = {
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",       "AWS_SESSION_TOKEN",    "AWS_SECURITY_TOKEN",
    "AWS_ROLE_ARN",      "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_SESSION_NAME"};

/// Returns `below`, except for the variables that `choice` replaces.
AwsEnvironment WithChoice(AwsEnvironment below, const AwsChoice& choice);

/// Holds the sections of a profile file by name: "[name]", or "[profile name]" as in ~/.aws/config, "[sso-session
/// name]" and "[services name]"; other kinds of section are skipped. Settings that are indented further than one
/// without a value above them ("s3 =") get its name in front: "s3.addressing_style"; other such lines are skipped.
/// Names of settings are in lower case.
using AwsSection = std::map<std::string, std::string>;
struct Profiles {
  std::map<std::string, AwsSection> profiles;
  std::map<std::string, AwsSection> sso_sessions;
  std::map<std::string, AwsSection> services;
};
/// Returns InvalidArgument, with the line's number, for a line that is neither a section, a setting nor a comment.
/// Pure; fuzzed.
absl::StatusOr<Profiles> ParseProfiles(std::string_view text);

/// Holds the environment and both profile files, merged. An empty variable is an unset one. Plain data.
class AwsSettings {
 public:
  /// Returns InvalidArgument when a file cannot be read or AWS_PROFILE names a profile that is not there.
  static absl::StatusOr<AwsSettings> Load(const AwsEnvironment& environment);

  std::string Variable(const std::string& name) const { return variable_(name).value_or(""); }
  /// Returns a setting of the profile in use; "" without one.
  std::string Profile(const std::string& key) const;
  /// Returns the first of the variables that is set, else the profile's setting.
  std::string First(std::initializer_list<std::string> variables, const std::string& key) const;
  /// Returns the origin of that value, for messages: "AWS_REGION", or "the profile 'x' in /root/.aws/config"; "" if it
  /// is not set.
  std::string Origin(std::initializer_list<std::string> variables, const std::string& key) const;

  /// Returns a setting that is true or false, in upper or lower case; false when it is not set. Returns InvalidArgument
  /// for others. No variable stands for some settings: "".
  absl::StatusOr<bool> Flag(const std::string& variable, const std::string& key) const;

  /// Returns the URL that stands in for a service ("s3", "sts", "sso oidc"): the first of its variable,
  /// AWS_ENDPOINT_URL, its entry in the profile's [services] section, and the profile's `endpoint_url`. Those for all
  /// services are S3's alone. Returns "" without one, or if they are to be ignored. Returns InvalidArgument if the
  /// section does not exist.
  absl::StatusOr<std::string> ServiceUrl(std::string_view service) const;
  /// Returns the origin of that URL.
  std::string OriginOfServiceUrl(std::string_view service) const;

  const std::string& profile_name() const { return profile_name_; }
  /// Returns nullptr when there is no such section.
  const AwsSection* FindProfile(const std::string& name) const;
  const AwsSection* FindSsoSession(const std::string& name) const;

 private:
  struct Found {
    std::string value;
    std::string origin;
  };
  absl::StatusOr<Found> FindServiceUrl(std::string_view service) const;

  std::function<std::optional<std::string>(const std::string& name)> variable_;
  std::string profile_name_;
  Profiles files_;
  std::map<std::string, std::string> file_of_;  // of each setting of the profile in use
};

}  // namespace millrace
