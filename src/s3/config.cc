#include "s3/config.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "s3/endpoint.h"

namespace millrace {

namespace {

constexpr size_t kMaxProfileFileBytes = 1 << 20;

std::string_view Trim(std::string_view text) {
  return ToStd(absl::StripAsciiWhitespace(ToAbsl(text)));
}

/// A comment within a line begins with a space before its mark.
std::string_view WithoutComment(std::string_view value) {
  for (size_t i = 1; i < value.size(); ++i) {
    if ((value[i] == '#' || value[i] == ';') && (value[i - 1] == ' ' || value[i - 1] == '\t'))
      return Trim(value.substr(0, i));
  }
  return value;
}

/// "[profile name]" or "[name]" -> name; nullopt for other kinds of section, such as "[sso-session x]".
std::optional<std::string> ProfileOf(std::string_view section) {
  section = Trim(section);
  const size_t space = section.find_first_of(" \t");
  if (space == std::string_view::npos) return std::string(section);
  if (section.substr(0, space) != "profile") return std::nullopt;
  std::string_view name = Trim(section.substr(space));
  if (name.size() >= 2 && name.front() == name.back() && (name.front() == '"' || name.front() == '\'')) {
    name = name.substr(1, name.size() - 2);
  }
  return std::string(name);
}

absl::StatusOr<std::string> ReadProfileFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(path);
  std::string text(kMaxProfileFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (file.bad()) return absl::InvalidArgumentError("cannot be read");
  if (text.size() > kMaxProfileFileBytes)
    return absl::InvalidArgumentError(fmt::format("is longer than {} bytes", kMaxProfileFileBytes));
  return text;
}

/// The environment with the usual rule that an empty variable is an unset one.
class Settings {
 public:
  explicit Settings(const S3Environment& environment) : environment_(environment) {}

  std::string Variable(const std::string& name) const { return environment_.variable(name).value_or(""); }

  absl::Status LoadProfile() {
    const std::string wanted = Variable("AWS_PROFILE");
    const std::string name = wanted.empty() ? "default" : wanted;
    bool found = false;
    // The credentials file wins where both name a key.
    for (const auto& [variable, file] :
         {std::pair("AWS_CONFIG_FILE", "config"), std::pair("AWS_SHARED_CREDENTIALS_FILE", "credentials")}) {
      std::string path = Variable(variable);
      if (path.empty()) {
        const std::string home = Variable("HOME");
        if (home.empty()) continue;
        path = fmt::format("{}/.aws/{}", home, file);
      }
      absl::StatusOr<std::string> text = environment_.read_file(path);
      if (absl::IsNotFound(text.status())) continue;
      if (!text.ok()) return Annotate(text.status(), path);
      absl::StatusOr<Profiles> profiles = ParseProfiles(*text);
      if (!profiles.ok()) return Annotate(profiles.status(), path);
      const auto at = profiles->find(name);
      if (at == profiles->end()) continue;
      found = true;
      for (const auto& [key, value] : at->second) profile_[key] = value;
    }
    if (!found && !wanted.empty()) {
      return absl::InvalidArgumentError(
          fmt::format("AWS_PROFILE names '{}', which is neither in ~/.aws/config nor in ~/.aws/credentials", wanted));
    }
    return absl::OkStatus();
  }

  std::string Profile(const std::string& key) const {
    const auto at = profile_.find(key);
    return at == profile_.end() ? std::string() : at->second;
  }

  std::string First(std::initializer_list<std::string> variables, const std::string& key) const {
    for (const std::string& name : variables) {
      if (std::string value = Variable(name); !value.empty()) return value;
    }
    return Profile(key);
  }

 private:
  const S3Environment& environment_;
  std::map<std::string, std::string> profile_;
};

absl::StatusOr<int> FindAttempts(const Settings& settings, int otherwise) {
  constexpr int kMost = 1000;
  const std::string text = settings.First({"AWS_MAX_ATTEMPTS"}, "max_attempts");
  if (text.empty()) return otherwise;
  int attempts = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), attempts);
  if (error != std::errc() || end != text.data() + text.size() || attempts < 1 || attempts > kMost) {
    return absl::InvalidArgumentError(fmt::format(
        "AWS_MAX_ATTEMPTS or the profile's max_attempts is '{}'; it must be a whole number from 1 to {}", text, kMost));
  }
  return attempts;
}

absl::StatusOr<S3Addressing> FindAddressing(const Settings& settings) {
  const std::string style = settings.Profile("s3.addressing_style");
  if (style.empty() || style == "auto") return S3Addressing::kAuto;
  if (style == "virtual") return S3Addressing::kVirtual;
  if (style == "path") return S3Addressing::kPath;
  return absl::InvalidArgumentError(
      fmt::format("the profile's addressing_style (in 's3 =') is '{}'; it must be auto, virtual or path", style));
}

absl::StatusOr<Credentials> FindCredentials(const Settings& settings) {
  Credentials credentials{settings.Variable("AWS_ACCESS_KEY_ID"), settings.Variable("AWS_SECRET_ACCESS_KEY"),
                          settings.Variable("AWS_SESSION_TOKEN")};
  if (credentials.access_key.empty() && credentials.secret_key.empty()) {
    credentials = {settings.Profile("aws_access_key_id"), settings.Profile("aws_secret_access_key"),
                   settings.Profile("aws_session_token")};
  }
  if (credentials.access_key.empty() != credentials.secret_key.empty()) {
    return absl::InvalidArgumentError(fmt::format(
        "only {} is set; set {} as well", credentials.access_key.empty() ? "the secret key" : "the access key",
        credentials.access_key.empty() ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY"));
  }
  if (credentials.access_key.empty()) return Credentials{};
  for (const std::string* value : {&credentials.access_key, &credentials.secret_key, &credentials.session_token}) {
    for (const char c : *value) {
      if (c <= ' ' || c > '~') {
        return absl::InvalidArgumentError(
            "an AWS key contains a space or a control character; check how it was copied");
      }
    }
  }
  return credentials;
}

}  // namespace

absl::StatusOr<Profiles> ParseProfiles(std::string_view text) {
  Profiles profiles;
  std::map<std::string, std::string>* profile = nullptr;
  bool in_section = false;
  // The last setting, which lines that are indented further belong to.
  std::string parent;                             // empty: it has a value
  size_t parent_indent = std::string_view::npos;  // no line is indented further than that
  for (int number = 1; !text.empty(); ++number) {
    const size_t length = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, length);
    text.remove_prefix(std::min(text.size(), length + 1));
    const std::string_view content = Trim(line);
    if (content.empty() || content.front() == '#' || content.front() == ';') continue;
    const auto refuse = [number](std::string_view why) {
      return absl::InvalidArgumentError(fmt::format("line {} {}", number, why));
    };
    if (content.front() == '[') {
      const size_t end = content.find(']');
      if (end == std::string_view::npos) return refuse("has no ']'");
      const std::optional<std::string> name = ProfileOf(content.substr(1, end - 1));
      profile = name ? &profiles[*name] : nullptr;
      in_section = true;
      parent_indent = std::string_view::npos;
      continue;
    }
    const size_t equals = content.find('=');
    const bool is_setting = equals != std::string_view::npos && !Trim(content.substr(0, equals)).empty();
    const size_t indent = line.find_first_not_of(" \t");
    const bool belongs_to_parent = indent > parent_indent;
    if (belongs_to_parent && (parent.empty() || !is_setting)) continue;  // more of a value that we do not read
    if (!is_setting) return refuse("is no setting (name = value)");
    if (!in_section) return refuse("stands before the first [section]");
    std::string name(Trim(content.substr(0, equals)));
    absl::AsciiStrToLower(&name);
    std::string value(WithoutComment(Trim(content.substr(equals + 1))));
    if (belongs_to_parent) {
      name = fmt::format("{}.{}", parent, name);
    } else {
      parent = value.empty() ? name : "";
      parent_indent = indent;
    }
    if (profile != nullptr) (*profile)[name] = std::move(value);
  }
  return profiles;
}

absl::StatusOr<S3Config> LoadS3Config(const S3Environment& environment) {
  Settings settings(environment);
  RETURN_IF_ERROR(settings.LoadProfile());
  S3Config config;
  config.endpoint_url = settings.First({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, "endpoint_url");
  if (!config.endpoint_url.empty()) RETURN_IF_ERROR(ParseEndpointUrl(config.endpoint_url).status());
  if (std::string region = settings.First({"AWS_REGION", "AWS_DEFAULT_REGION"}, "region"); !region.empty())
    config.region = std::move(region);
  if (!PlausibleRegion(config.region)) {
    return absl::InvalidArgumentError(
        fmt::format("the AWS region '{}' is not a region's name; check AWS_REGION", config.region));
  }
  config.ca_file = settings.First({"AWS_CA_BUNDLE"}, "ca_bundle");
  ASSIGN_OR_RETURN(config.max_attempts, FindAttempts(settings, config.max_attempts));
  ASSIGN_OR_RETURN(config.addressing, FindAddressing(settings));
  const std::string anonymous = settings.Variable("MILLRACE_S3_ANONYMOUS");
  config.anonymous = !anonymous.empty() && anonymous != "0";
  if (config.anonymous) return config;
  ASSIGN_OR_RETURN(config.credentials, FindCredentials(settings));
  return config;
}

absl::StatusOr<S3Config> LoadS3Config() {
  const S3Environment environment = {
      .variable = [](const std::string& name) -> std::optional<std::string> {
        const char* value = std::getenv(name.c_str());
        return value ? std::optional<std::string>(value) : std::nullopt;
      },
      .read_file = ReadProfileFile,
  };
  return LoadS3Config(environment);
}

}  // namespace millrace
