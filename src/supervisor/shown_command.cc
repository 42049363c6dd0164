#include "supervisor/shown_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_replace.h"

namespace millrace {

namespace {

constexpr const char* kHidden = "***";
constexpr std::string_view kWhiteSpace = " \t\n";

char LowerLetter(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Returns true if the name ends like that of a secret: HF_TOKEN, db.password, wandb-api-key.
bool IsSecretName(std::string_view name) {
  constexpr std::array<std::string_view, 11> kLast = {"token",       "secret", "password", "passwd",
                                                      "passphrase",  "pwd",    "apikey",   "credential",
                                                      "credentials", "auth",   "bearer"};
  constexpr std::array<std::string_view, 7> kKinds = {"api",     "access",     "secret", "private",
                                                      "account", "encryption", "session"};
  std::string lower;
  for (const char c : name) lower.push_back(c == '-' || c == '.' ? '_' : LowerLetter(c));
  if (lower == "pwd") return false;  // the folder of a shell
  const size_t cut = lower.rfind('_');
  const std::string last = cut == std::string::npos ? lower : lower.substr(cut + 1);
  if (std::ranges::find(kLast, last) != kLast.end()) return true;
  if (last != "key" || cut == std::string::npos) return false;
  const std::string before = lower.substr(0, cut);
  const size_t begin = before.rfind('_');
  const std::string kind = begin == std::string::npos ? before : before.substr(begin + 1);
  return std::ranges::find(kKinds, kind) != kKinds.end();
}

bool IsVariableName(std::string_view name) {
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
  return std::ranges::all_of(name, [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (LowerLetter(c) >= 'a' && LowerLetter(c) <= 'z');
  });
}

std::string_view WithoutDashes(std::string_view option) {
  return option.substr(std::min(option.find_first_not_of('-'), option.size()));
}

// Returns true for nothing, and for what a shell replaces: "$KEY", $(aws ssm get-parameter ...).
bool IsReference(std::string_view value) {
  if (value.starts_with('"') || value.starts_with('\'')) value.remove_prefix(1);
  return value.empty() || value[0] == '$' || value[0] == '`';
}

/// Shows one token after the other; what a token means depends on those before it.
class ShownTokens {
 public:
  std::string Next(std::string_view token) {
    if (quote_ != 0) return RestOfQuoted(token);
    if (takes_secret_ && !token.starts_with('-')) {
      takes_secret_ = false;
      has_secret_ = has_secret_ || !IsReference(token);
      return Hide("", token);
    }
    const size_t equals = token.find('=');
    const bool is_option = token.starts_with('-');
    const std::string_view name = WithoutDashes(token.substr(0, std::min(equals, token.size())));
    const bool assigns = !is_option && equals != std::string_view::npos && IsVariableName(name);
    const bool of_env = std::exchange(of_env_, token.substr(token.rfind('/') + 1) == "env" || TakesEnv(token, assigns));
    takes_secret_ = is_option && equals == std::string_view::npos && IsSecretName(name);
    const bool is_secret = equals != std::string_view::npos && (assigns || is_option) && IsSecretName(name);
    has_secret_ = has_secret_ || (is_secret && !IsReference(token.substr(equals + 1)));
    if (is_secret || (assigns && of_env)) return Hide(token.substr(0, equals + 1), token.substr(equals + 1));
    std::string shown = WithoutUser(token);
    has_secret_ = has_secret_ || (shown != token && token.find("ssh://") == std::string_view::npos);
    return shown;
  }

  bool has_secret() const { return has_secret_; }

 private:
  // Returns true if `env` may take the next token, too.
  bool TakesEnv(std::string_view token, bool assigns) {
    const bool value = std::exchange(env_value_, of_env_ && (token == "-u" || token == "-C" || token == "-S"));
    return of_env_ && (assigns || value || token.starts_with('-'));
  }

  std::string Hide(std::string_view before, std::string_view value) {
    if (!value.empty() && (value[0] == '"' || value[0] == '\'') && value.find(value[0], 1) == std::string_view::npos)
      quote_ = value[0];
    return fmt::format("{}{}", before, kHidden);
  }

  std::string RestOfQuoted(std::string_view token) {
    const size_t end = token.find(quote_);
    if (end == std::string_view::npos) return "";
    quote_ = 0;
    return std::string(token.substr(end + 1));
  }

  bool has_secret_ = false;
  bool of_env_ = false;        // variables of `env` may follow
  bool env_value_ = false;     // the value of an option of `env` follows
  bool takes_secret_ = false;  // the value of an option follows
  char quote_ = 0;             // of a hidden value that has not ended
};

}  // namespace

std::string WithoutUser(std::string_view url) {
  const size_t scheme = url.find("://");
  if (scheme == std::string_view::npos) return std::string(url);  // git@host:path has no password
  const size_t path = std::min(url.find('/', scheme + 3), url.size());
  const size_t at = url.substr(0, path).rfind('@');
  if (at == std::string_view::npos || at < scheme) return std::string(url);
  return fmt::format("{}{}", url.substr(0, scheme + 3), url.substr(at + 1));
}

namespace {

std::vector<std::string> Show(const std::vector<std::string>& words, const std::vector<std::string>& secrets,
                              ShownTokens& tokens) {
  std::vector<std::string> shown;
  for (std::string word : words) {
    for (const std::string& secret : secrets) {
      if (!secret.empty()) absl::StrReplaceAll({{secret, kHidden}}, &word);
    }
    std::string& text = shown.emplace_back();
    for (size_t at = 0; at < word.size();) {
      const size_t end = std::min(word.find_first_of(kWhiteSpace, at), word.size());
      if (end > at) text += tokens.Next(std::string_view(word).substr(at, end - at));
      at = std::min(word.find_first_not_of(kWhiteSpace, end), word.size());
      text += word.substr(end, at - end);
    }
  }
  return shown;
}

}  // namespace

std::vector<std::string> ShownCommand(const std::vector<std::string>& words, const std::vector<std::string>& secrets) {
  ShownTokens tokens;
  return Show(words, secrets, tokens);
}

bool HasSecret(const std::vector<std::string>& words) {
  ShownTokens tokens;
  Show(words, {}, tokens);
  return tokens.has_secret();
}

}  // namespace millrace
