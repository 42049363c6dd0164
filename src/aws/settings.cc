#include "aws/settings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/atomic_file.h"

namespace millrace {

namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(path);
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (file.bad()) return absl::InvalidArgumentError("cannot be read");
  if (text.size() > kMaxFileBytes)
    return absl::InvalidArgumentError(fmt::format("is longer than {} bytes", kMaxFileBytes));
  return text;
}

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

/// These are the two files of the AWS tools.
enum class FileKind : uint8_t { kConfig, kCredentials };

/// Returns the section that settings below "[profile name]", "[name]" or "[sso-session name]" belong to; nullptr for
/// other kinds. In the credentials file, any other name is that of a profile.
AwsSection* SectionOf(std::string_view section, FileKind file, Profiles& profiles) {
  section = Trim(section);
  const size_t space = section.find_first_of(" \t");
  if (space == std::string_view::npos) return &profiles.profiles[std::string(section)];
  const std::string_view kind = section.substr(0, space);
  if (kind != "profile" && kind != "sso-session" && kind != "services")
    return file == FileKind::kCredentials ? &profiles.profiles[std::string(section)] : nullptr;
  std::string_view name = Trim(section.substr(space));
  if (name.size() >= 2 && name.front() == name.back() && (name.front() == '"' || name.front() == '\'')) {
    name = name.substr(1, name.size() - 2);
  }
  auto& sections = kind == "profile"    ? profiles.profiles
                   : kind == "services" ? profiles.services
                                        : profiles.sso_sessions;
  return &sections[std::string(name)];
}

void Merge(std::map<std::string, AwsSection> from, std::map<std::string, AwsSection>& into) {
  for (auto& [name, section] : from) {
    AwsSection& target = into[name];
    for (auto& [key, value] : section) target[key] = std::move(value);
  }
}

/// The keys of a profile come from one file: that of credentials if it has an access key, as botocore has it. Without
/// one, what else it has of keys says nothing.
void KeepKeysTogether(Profiles& credentials, std::map<std::string, AwsSection>& config) {
  for (auto& [name, section] : credentials.profiles) {
    const auto access = section.find("aws_access_key_id");
    const bool has_key = access != section.end() && !access->second.empty();
    const auto other = config.find(name);
    if (has_key && other == config.end()) continue;
    AwsSection& without = has_key ? other->second : section;
    for (const char* key : {"aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_security_token"})
      without.erase(key);
  }
}

/// Returns a path of the user, as the AWS tools read it: with "~", $NAME and ${NAME}.
std::string ExpandPath(const std::string& path, const std::function<std::string(const std::string&)>& variable) {
  std::string out;
  for (size_t at = 0; at < path.size();) {
    size_t begin = at + 1;
    const bool braces = path[at] == '$' && begin < path.size() && path[begin] == '{';
    if (braces) ++begin;
    size_t end = begin;
    const auto in_name = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; };
    while (path[at] == '$' && end < path.size() && in_name(path[end])) ++end;
    const bool whole = end > begin && (!braces || (end < path.size() && path[end] == '}'));
    const std::string value = whole ? variable(path.substr(begin, end - begin)) : "";
    if (value.empty()) {
      out += path[at++];
      continue;
    }
    out += value;
    at = braces ? end + 1 : end;
  }
  const bool in_home = out == "~" || out.starts_with("~/");
  if (const std::string home = in_home ? variable("HOME") : ""; !home.empty()) out.replace(0, 1, home);
  return out;
}

const AwsSection* Find(const std::map<std::string, AwsSection>& sections, const std::string& name) {
  const auto at = sections.find(name);
  return at == sections.end() ? nullptr : &at->second;
}

absl::StatusOr<Profiles> ParseFile(std::string_view text, FileKind file) {
  Profiles profiles;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // of editors on Windows
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  AwsSection* section = nullptr;
  bool in_section = false;
  // This is the last setting, which lines that are indented further belong to.
  std::string parent;  // empty: it has a value
  constexpr size_t kNone = std::string_view::npos;
  size_t parent_indent = kNone;
  for (int number = 1; !text.empty(); ++number) {
    const size_t length = std::min(text.find_first_of("\r\n"), text.size());
    const std::string_view line = text.substr(0, length);
    text.remove_prefix(text.substr(length).starts_with("\r\n") ? length + 2 : std::min(text.size(), length + 1));
    const std::string_view content = Trim(line);
    if (content.empty() || content.front() == '#' || content.front() == ';') continue;
    const auto refuse = [number](std::string_view why) {
      return absl::InvalidArgumentError(fmt::format("line {} {}", number, why));
    };
    if (content.front() == '[') {
      const size_t end = content.find(']');
      if (end == std::string_view::npos) return refuse("has no ']'");
      section = SectionOf(content.substr(1, end - 1), file, profiles);
      in_section = true;
      parent_indent = kNone;
      continue;
    }
    const size_t equals = content.find_first_of("=:");
    const bool is_setting = equals != std::string_view::npos && !Trim(content.substr(0, equals)).empty();
    const size_t indent = line.find_first_not_of(" \t");
    const bool belongs_to_parent = parent_indent != kNone && indent > parent_indent;
    if (belongs_to_parent && (parent.empty() || !is_setting)) continue;  // more of a value that we do not read
    if (!is_setting) return refuse("is not a setting (name = value)");
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
    if (section != nullptr) (*section)[name] = std::move(value);
  }
  return profiles;
}

}  // namespace

absl::StatusOr<Profiles> ParseProfiles(std::string_view text) {
  return ParseFile(text, FileKind::kConfig);
}

AwsEnvironment ProcessEnvironment() {
  auto variables = std::make_shared<std::map<std::string, std::string>>();
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables->emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return {.variable = [variables](const std::string& name) -> std::optional<std::string> {
            const auto at = variables->find(name);
            return at == variables->end() ? std::nullopt : std::optional(at->second);
          },
          .read_file = ReadSmallFile,
          .write_file = [](const std::string& path,
                           const std::string& contents) { return WriteFileAtomically(path, contents, 0600); }};
}

AwsEnvironment WithChoice(AwsEnvironment below, const AwsChoice& choice) {
  std::map<std::string, std::optional<std::string>> replaced;
  if (!choice.endpoint_url.empty()) {
    replaced["AWS_ENDPOINT_URL_S3"] = choice.endpoint_url;
    replaced["AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"] = "false";
  }
  if (!choice.profile.empty()) {
    replaced["AWS_PROFILE"] = choice.profile;
    for (const char* name : kIdentityVariables) replaced[name] = std::nullopt;
  }
  if (!choice.region.empty()) replaced["AWS_REGION"] = choice.region;
  below.variable = [replaced = std::move(replaced), variable = std::move(below.variable)](const std::string& name) {
    const auto at = replaced.find(name);
    return at == replaced.end() ? variable(name) : at->second;
  };
  return below;
}

absl::StatusOr<AwsSettings> AwsSettings::Load(const AwsEnvironment& environment) {
  AwsSettings settings;
  settings.variable_ = environment.variable;
  std::string wanted = settings.Variable("AWS_PROFILE");
  if (wanted.empty()) wanted = settings.Variable("AWS_DEFAULT_PROFILE");
  settings.profile_name_ = wanted.empty() ? "default" : wanted;
  // The credentials file wins where both name a key.
  for (const auto& [variable, file] :
       {std::pair("AWS_CONFIG_FILE", "config"), std::pair("AWS_SHARED_CREDENTIALS_FILE", "credentials")}) {
    std::string path = settings.Variable(variable);
    if (path.empty()) {
      const std::string home = settings.Variable("HOME");
      if (home.empty()) continue;
      path = fmt::format("{}/.aws/{}", home, file);
    } else {
      path = ExpandPath(path, [&](const std::string& name) { return settings.Variable(name); });
    }
    absl::StatusOr<std::string> text = environment.read_file(path);
    if (absl::IsNotFound(text.status())) continue;
    if (!text.ok()) return Annotate(text.status(), path);
    const bool of_keys = std::string_view(file) == "credentials";
    absl::StatusOr<Profiles> profiles = ParseFile(*text, of_keys ? FileKind::kCredentials : FileKind::kConfig);
    if (!profiles.ok()) return Annotate(profiles.status(), path);
    if (of_keys) KeepKeysTogether(*profiles, settings.files_.profiles);
    if (const AwsSection* const section = Find(profiles->profiles, settings.profile_name_)) {
      for (const auto& [key, value] : *section) settings.file_of_[key] = path;
    }
    Merge(std::move(profiles->profiles), settings.files_.profiles);
    Merge(std::move(profiles->sso_sessions), settings.files_.sso_sessions);
    Merge(std::move(profiles->services), settings.files_.services);
  }
  if (!wanted.empty() && settings.FindProfile(wanted) == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("there is no profile '{}' (AWS_PROFILE, --profile, or profile= of a Dataset) in ~/.aws/config or "
                    "~/.aws/credentials",
                    wanted));
  }
  return settings;
}

std::string AwsSettings::Profile(const std::string& key) const {
  const AwsSection* const section = FindProfile(profile_name_);
  if (section == nullptr) return "";
  const auto at = section->find(key);
  return at == section->end() ? std::string() : at->second;
}

std::string AwsSettings::First(std::initializer_list<std::string> variables, const std::string& key) const {
  for (const std::string& name : variables) {
    if (std::string value = Variable(name); !value.empty()) return value;
  }
  return Profile(key);
}

std::string AwsSettings::Origin(std::initializer_list<std::string> variables, const std::string& key) const {
  for (const std::string& name : variables) {
    if (!Variable(name).empty()) return name;
  }
  return Profile(key).empty() ? "" : fmt::format("the profile '{}' in {}", profile_name_, file_of_.at(key));
}

absl::StatusOr<bool> AwsSettings::Flag(const std::string& variable, const std::string& key) const {
  const std::string value = absl::AsciiStrToLower(variable.empty() ? Profile(key) : First({variable}, key));
  if (value.empty() || value == "false") return false;
  if (value == "true") return true;
  return absl::InvalidArgumentError(fmt::format("{}the profile's {} is '{}'; it must be true or false",
                                                variable.empty() ? "" : variable + " or ", key, value));
}

absl::StatusOr<AwsSettings::Found> AwsSettings::FindServiceUrl(std::string_view service) const {
  ASSIGN_OR_RETURN(const bool ignored, Flag("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "ignore_configured_endpoint_urls"));
  if (ignored) return Found();
  std::string id(service);
  std::replace(id.begin(), id.end(), ' ', '_');
  const std::string of_service = fmt::format("AWS_ENDPOINT_URL_{}", absl::AsciiStrToUpper(id));
  const bool is_store = service == "s3";  // tokens and keys of other services are not sent to the store's server
  for (const std::string& name : {of_service, std::string(is_store ? "AWS_ENDPOINT_URL" : "")}) {
    if (std::string value = name.empty() ? "" : Variable(name); !value.empty()) return Found{std::move(value), name};
  }
  if (const std::string services = Profile("services"); !services.empty()) {
    const AwsSection* const section = Find(files_.services, services);
    if (section == nullptr) {
      return absl::InvalidArgumentError(
          fmt::format("the profile '{}' has services = {}, but there is no section [services {}]", profile_name_,
                      services, services));
    }
    const auto at = section->find(fmt::format("{}.endpoint_url", id));
    if (at != section->end() && !at->second.empty())
      return Found{at->second, fmt::format("[services {}] in {}", services, file_of_.at("services"))};
  }
  if (!is_store) return Found();
  return Found{Profile("endpoint_url"), Origin({}, "endpoint_url")};
}

absl::StatusOr<std::string> AwsSettings::ServiceUrl(std::string_view service) const {
  ASSIGN_OR_RETURN(Found found, FindServiceUrl(service));
  return std::move(found.value);
}

std::string AwsSettings::OriginOfServiceUrl(std::string_view service) const {
  absl::StatusOr<Found> found = FindServiceUrl(service);
  return found.ok() ? std::move(found->origin) : std::string();
}

const AwsSection* AwsSettings::FindProfile(const std::string& name) const {
  return Find(files_.profiles, name);
}

const AwsSection* AwsSettings::FindSsoSession(const std::string& name) const {
  return Find(files_.sso_sessions, name);
}

}  // namespace millrace
