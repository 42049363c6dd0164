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
constexpr std::string_view kQuotes = "\"'";

bool IsUpper(char c) {
  return c >= 'A' && c <= 'Z';
}

char LowerLetter(char c) {
  return IsUpper(c) ? static_cast<char>(c - 'A' + 'a') : c;
}

bool IsLetter(char c) {
  return LowerLetter(c) >= 'a' && LowerLetter(c) <= 'z';
}

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

// The characters of names of options ("--api-key"), of Hydra ("++db.password") and of headers ("X-Api-Key") count, too.
bool IsOfName(char c) {
  return IsLetter(c) || IsDigit(c) || std::string_view("_-.+~[]").find(c) != std::string_view::npos;
}

// The words of a name in small letters, without digits: "hfToken2" is "hf", "token"; "API_KEY" is "api", "key".
std::vector<std::string> WordsOf(std::string_view name) {
  std::vector<std::string> words(1);
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool after_small = i > 0 && IsLetter(name[i - 1]) && !IsUpper(name[i - 1]);
    const bool before_small = i > 0 && i + 1 < name.size() && IsLetter(name[i + 1]) && !IsUpper(name[i + 1]);
    const bool begins = IsUpper(c) && (after_small || before_small);
    if ((begins || !(IsLetter(c) || IsDigit(c))) && !words.back().empty()) words.emplace_back();
    if (IsLetter(c)) words.back().push_back(LowerLetter(c));
  }
  if (words.size() > 1 && words.back().empty()) words.pop_back();
  return words;
}

// Returns true if the name ends like that of a secret: HF_TOKEN, PGPASSWORD, db.password, wandb-api-key, hfToken.
bool IsSecretName(std::string_view name) {
  constexpr std::array<std::string_view, 8> kLast = {"pwd",         "pass", "pat",    "credential",
                                                     "credentials", "auth", "bearer", "authorization"};
  constexpr std::array<std::string_view, 5> kSuffixes = {"token", "secret", "password", "passwd", "passphrase"};
  constexpr std::array<std::string_view, 9> kKinds = {"api",        "access",  "secret",  "private", "account",
                                                      "encryption", "session", "storage", "signing"};
  const auto ends_with_one = [](std::string_view text, const auto& all) {
    return std::ranges::any_of(all, [&](std::string_view each) { return text.ends_with(each); });
  };
  const std::vector<std::string> words = WordsOf(name);
  const std::string_view last = words.back();
  if (words.size() == 1 && last == "pwd") return false;  // the folder of a shell
  if (std::ranges::find(kLast, last) != kLast.end() || ends_with_one(last, kSuffixes)) return true;
  if (!last.ends_with("key")) return false;
  const std::string_view kind = last.substr(0, last.size() - 3);
  if (!kind.empty()) return ends_with_one(kind, kKinds);
  return words.size() > 1 && ends_with_one(words[words.size() - 2], kKinds);
}

// Returns true if the name is one of a query that carries the right to read, as of a URL that is signed.
bool IsSignature(std::string_view name) {
  const std::vector<std::string> words = WordsOf(name);
  return words.back() == "signature" || words.back() == "sig";
}

bool IsVariableName(std::string_view name) {
  return !name.empty() && !IsDigit(name[0]) &&
         std::ranges::all_of(name, [](char c) { return c == '_' || IsDigit(c) || IsLetter(c); });
}

std::string WithoutUsers(std::string text) {
  constexpr size_t kNone = std::string::npos;
  for (size_t at = text.rfind("://"); at != kNone; at = at == 0 ? kNone : text.rfind("://", at - 1))
    text.replace(at, kNone, WithoutUser(text.substr(at)));
  return text;
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
      if (IsScheme(token)) return std::string(token);
      takes_secret_ = false;
      return Hide(token, 0, "");
    }
    const size_t equals = token.find('=');
    const bool assigns = equals != std::string_view::npos && IsVariableName(token.substr(0, equals));
    const bool of_env = std::exchange(of_env_, token.substr(token.rfind('/') + 1) == "env" || TakesEnv(token, assigns));
    takes_secret_ = IsHttpScheme(token) || (token.starts_with('-') && equals == std::string_view::npos &&
                                            !token.starts_with("--no-") && IsSecretName(token));
    if (assigns && of_env) {
      const bool had_secret = has_secret_;
      std::string shown = std::string(token.substr(0, equals + 1)) + Hide(token, equals + 1, "");
      if (!IsSecretName(token.substr(0, equals))) has_secret_ = had_secret;
      return shown;
    }
    const std::string values = HideValues(token);
    std::string shown = WithoutUsers(values);
    has_secret_ = has_secret_ || (shown != values && token.find("ssh://") == std::string_view::npos);
    return shown;
  }

  bool has_secret() const { return has_secret_; }
  /// A quote that is still open is a part of the word.
  void EndWord() { quote_ = 0; }

 private:
  // Returns the word between the name of a header and its secret.
  static bool IsScheme(std::string_view token) {
    std::string lower;
    for (const char c : token) lower.push_back(LowerLetter(c));
    return lower == "bearer" || lower == "basic" || lower == "token";
  }
  static bool IsHttpScheme(std::string_view token) {
    token.remove_prefix(std::min(token.find_first_not_of("\\\"'"), token.size()));
    return token == "Bearer" || token == "Basic";
  }

  // Returns true if `env` may take the next token, too.
  bool TakesEnv(std::string_view token, bool assigns) {
    constexpr std::array<std::string_view, 8> kWithValue = {"-u", "--unset",        "-C", "--chdir",
                                                            "-S", "--split-string", "-a", "--argv0"};
    const bool takes_value = std::ranges::find(kWithValue, token) != kWithValue.end();
    const bool value = std::exchange(env_value_, of_env_ && takes_value);
    return of_env_ && (assigns || value || token.starts_with('-'));
  }

  // Hides the values of a token that are named: NAME=x, ?sig=x&sig=x, {"name":"x"}, Name: (and the next token).
  std::string HideValues(std::string_view token) {
    std::string shown;
    size_t done = 0;
    for (size_t at = token.find_first_of("=:"); at != std::string_view::npos; at = token.find_first_of("=:", at + 1)) {
      if (at < done) continue;
      size_t end = at;
      while (end > done && (kQuotes.find(token[end - 1]) != std::string_view::npos || token[end - 1] == '\\')) --end;
      size_t begin = end;
      while (begin > done && IsOfName(token[begin - 1])) --begin;
      const std::string_view name = token.substr(begin, end - begin);
      const char before = begin == 0 ? '\0' : token[begin - 1];
      const bool of_query = before == '?' || (before == '&' && token.find('?') < begin);
      if (name.empty() || !(IsSecretName(name) || (of_query && IsSignature(name)))) continue;
      if (token[at] == ':' && at + 1 == token.size()) {
        takes_secret_ = true;
        break;
      }
      if (token[at] == ':' && !NamesValue(name, before, end < at)) continue;
      if (IsScheme(token.substr(at + 1))) {
        takes_secret_ = true;
        break;
      }
      shown += token.substr(done, at + 1 - done);
      shown += Hide(token, at + 1, Terminators(before, of_query, end < at || token[at] == ':'));
      done = hidden_to_;
    }
    return shown + std::string(token.substr(done));
  }

  // Returns true if what follows the colon is the value of the name. "app.auth:main" of Python is no such name.
  static bool NamesValue(std::string_view name, char before, bool quoted) {
    const std::vector<std::string> words = WordsOf(name);
    return quoted || before == '{' || before == ',' || words.front() == "x" || words.back().ends_with("authorization");
  }

  // Returns characters that end a value without quotes. "": only the end of the token.
  static std::string_view Terminators(char before, bool of_query, bool of_json) {
    if (of_query) return "&\"'";
    if (of_json || before == '{' || before == ',') return ",}";
    if (before == ';') return ";\"'";
    if (before == '"') return "\"";
    return before == '\'' ? "'" : "";
  }

  // Hides the value that begins at `begin`, to hidden_to_. Its quotes count, also those that a backslash is before.
  std::string Hide(std::string_view token, size_t begin, std::string_view terminators) {
    has_secret_ = has_secret_ || !IsReference(token.substr(begin));
    const size_t quote = std::min(token.find_first_not_of('\\', begin), token.size());
    if (quote < token.size() && kQuotes.find(token[quote]) != std::string_view::npos) {
      const std::string_view opening = token.substr(begin, quote + 1 - begin);
      const size_t close = token.find(opening, quote + 1);
      if (close == std::string_view::npos) quote_ = token[quote];
      hidden_to_ = close == std::string_view::npos ? token.size() : close + opening.size();
    } else {
      hidden_to_ = std::min(token.find_first_of(terminators, begin), token.size());
      if (hidden_to_ == token.size() && terminators.size() == 1) quote_ = terminators[0];
    }
    return kHidden;
  }

  std::string RestOfQuoted(std::string_view token) {
    const size_t end = token.find(quote_);
    if (end == std::string_view::npos) return "";
    quote_ = 0;
    return WithoutUsers(HideValues(token.substr(end + 1)));
  }

  bool has_secret_ = false;
  bool of_env_ = false;        // variables of `env` may follow
  bool env_value_ = false;     // the value of an option of `env` follows
  bool takes_secret_ = false;  // the value of an option or of a header follows
  char quote_ = 0;             // of a hidden value that has not ended
  size_t hidden_to_ = 0;       // where the last hidden value has ended
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
    tokens.EndWord();
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
