#include "dataset/object_selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "base/crypto.h"
#include "base/number.h"
#include "base/size.h"
#include "store/glob.h"
#include "store/uri.h"

namespace millrace {

namespace {

constexpr size_t kMostTexts = 100'000;
constexpr uint64_t kMostTextBytes = uint64_t{64} << 20;  // of all texts that one expansion writes
constexpr size_t kMostNested = 100;
// Up to this many names of one folder are listed by themselves; if there are more, the folder is listed.
constexpr size_t kMostPrefixesOfFolder = 16;

// Returns the parts of a text between commas outside of inner braces. If there are more than an expansion may have, it
// stops at the first one too many.
std::vector<std::string_view> SplitAtCommas(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size() && parts.size() <= kMostTexts; ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      parts.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    } else if (text[i] == '\\' && i + 1 < text.size()) {
      ++i;
    } else if (text[i] == '{') {
      ++depth;
    } else if (text[i] == '}') {
      --depth;
    }
  }
  return parts;
}

absl::Status TooDeep() {
  return absl::InvalidArgumentError(fmt::format("braces are nested more than {} deep; write fewer", kMostNested));
}

// Returns the place of the '}' that ends the '{' at the beginning; npos if there is none.
absl::StatusOr<size_t> EndOfBrace(std::string_view text) {
  size_t depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '{') {
      if (++depth > kMostNested) return TooDeep();  // also of those that nothing ends: each costs a look at the rest
    } else if (text[i] == '}' && --depth == 0) {
      return i;
    }
  }
  return std::string_view::npos;
}

// Represents the expansion of one text. The limits are checked before memory is taken.
class BraceExpansion {
 public:
  using Texts = std::vector<std::string>;

  explicit BraceExpansion(std::string_view whole) : whole_(whole) {}
  absl::StatusOr<Texts> Expand(std::string_view text, size_t nested);

 private:
  absl::StatusOr<Texts> ExpandInside(std::string_view inside, size_t nested);
  absl::StatusOr<Texts> ExpandRange(std::string_view text);
  absl::Status Append(std::string_view piece, Texts* texts);
  absl::StatusOr<Texts> Combine(const Texts& beginnings, const Texts& ends);
  // Counts `texts` texts that are about to be written, or refuses them.
  absl::Status Charge(uint64_t texts, uint64_t bytes);

  std::string_view whole_;
  uint64_t charged_bytes_ = 0;
};

absl::Status BraceExpansion::Charge(uint64_t texts, uint64_t bytes) {
  constexpr size_t kShownBytes = 200;
  const auto too_much = [this](const std::string& what) {
    return absl::InvalidArgumentError(
        fmt::format("{}{}: the braces stand for more than {}; give their folder, or a pattern with '*'",
                    whole_.substr(0, kShownBytes), whole_.size() > kShownBytes ? "..." : "", what));
  };
  if (texts > kMostTexts) return too_much(fmt::format("{} names", kMostTexts));
  charged_bytes_ += bytes;
  return charged_bytes_ <= kMostTextBytes ? absl::OkStatus()
                                          : too_much(fmt::format("{} of names", FormatSize(kMostTextBytes)));
}

// Expands "000..123"; empty if it is no such range.
absl::StatusOr<BraceExpansion::Texts> BraceExpansion::ExpandRange(std::string_view text) {
  Texts numbers;
  const size_t dots = text.find("..");
  if (dots == std::string_view::npos) return numbers;
  const std::string_view low = text.substr(0, dots);
  const std::string_view high = text.substr(dots + 2);
  const std::optional<uint64_t> from = ParseNumber<uint64_t>(low);
  const std::optional<uint64_t> to = ParseNumber<uint64_t>(high);
  if (!from || !to) return numbers;
  const bool padded = (low.size() > 1 && low.front() == '0') || (high.size() > 1 && high.front() == '0');
  const size_t longest = std::max(low.size(), high.size());
  const uint64_t steps = std::max(*from, *to) - std::min(*from, *to);
  if (steps >= kMostTexts) return Charge(kMostTexts + 1, 0);
  RETURN_IF_ERROR(Charge(steps + 1, (steps + 1) * (sizeof(std::string) + longest)));
  for (uint64_t i = 0; i <= steps; ++i)
    numbers.push_back(fmt::format("{:0{}}", *from <= *to ? *from + i : *from - i, padded ? longest : 1));
  return numbers;
}

// Returns the alternatives inside of braces; empty if there are none.
absl::StatusOr<BraceExpansion::Texts> BraceExpansion::ExpandInside(std::string_view inside, size_t nested) {
  const std::vector<std::string_view> parts = SplitAtCommas(inside);
  if (parts.size() == 1) return ExpandRange(inside);
  RETURN_IF_ERROR(Charge(parts.size(), 0));
  Texts alternatives;
  for (const std::string_view part : parts) {
    ASSIGN_OR_RETURN(Texts texts, Expand(part, nested + 1));
    RETURN_IF_ERROR(Charge(alternatives.size() + texts.size(), 0));
    std::move(texts.begin(), texts.end(), std::back_inserter(alternatives));
  }
  return alternatives;
}

absl::Status BraceExpansion::Append(std::string_view piece, Texts* texts) {
  RETURN_IF_ERROR(Charge(texts->size(), texts->size() * piece.size()));
  for (std::string& text : *texts) text += piece;
  return absl::OkStatus();
}

absl::StatusOr<BraceExpansion::Texts> BraceExpansion::Combine(const Texts& beginnings, const Texts& ends) {
  const auto bytes_of = [](const Texts& texts) {
    uint64_t bytes = 0;
    for (const std::string& text : texts) bytes += text.size();
    return bytes;
  };
  const uint64_t count = beginnings.size() * ends.size();
  RETURN_IF_ERROR(Charge(
      count, count * sizeof(std::string) + bytes_of(beginnings) * ends.size() + bytes_of(ends) * beginnings.size()));
  Texts texts;
  texts.reserve(count);
  for (const std::string& beginning : beginnings) {
    for (const std::string& end : ends) texts.push_back(beginning + end);
  }
  return texts;
}

absl::StatusOr<BraceExpansion::Texts> BraceExpansion::Expand(std::string_view text, size_t nested) {
  if (nested > kMostNested) return TooDeep();
  Texts texts = {""};
  while (!text.empty()) {
    size_t plain = 0;
    while (plain < text.size() && text[plain] != '{') plain += text[plain] == '\\' ? 2 : 1;
    plain = std::min(plain, text.size());
    RETURN_IF_ERROR(Append(text.substr(0, plain), &texts));
    text.remove_prefix(plain);
    if (text.empty()) break;
    ASSIGN_OR_RETURN(const size_t end, EndOfBrace(text));
    Texts alternatives;
    if (end != std::string_view::npos) {
      ASSIGN_OR_RETURN(alternatives, ExpandInside(text.substr(1, end - 1), nested));
    }
    if (alternatives.empty()) {
      RETURN_IF_ERROR(Append("{", &texts));
      text.remove_prefix(1);
      continue;
    }
    ASSIGN_OR_RETURN(texts, Combine(texts, alternatives));
    text.remove_prefix(end + 1);
  }
  return texts;
}

bool IsLiteral(std::string_view pattern) {
  return !HasWildcard(pattern);
}

// Returns the folder of a pattern's literal beginning: "" or ending with '/'.
std::string PatternFolder(std::string_view pattern) {
  const std::string literal = GlobLiteralPrefix(pattern);
  return literal.substr(0, literal.rfind('/') + 1);
}

std::string CommonBeginning(const std::string& a, const std::string& b) {
  return a.substr(0, static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin()));
}

// Represents a URI, split where its keys begin: after "s3://bucket/", or after "/" for files.
struct Rooted {
  std::string root;
  std::string pattern;
};

absl::StatusOr<Rooted> SplitAtRoot(const std::string& uri) {
  ASSIGN_OR_RETURN(const ParsedUri parsed, ParseUri(uri));
  if (parsed.scheme != ParsedUri::Scheme::kFile) {
    const std::string_view scheme = std::string_view(uri).substr(0, uri.find("://") + 3);
    return Rooted{.root = fmt::format("{}{}/", scheme, parsed.store), .pattern = parsed.path};
  }
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(parsed.path, error);
  if (error) return absl::UnavailableError(fmt::format("{}: the working directory: {}", uri, error.message()));
  return Rooted{.root = "/", .pattern = path.lexically_normal().string().substr(1)};
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandBraces(std::string_view text) {
  return BraceExpansion(text).Expand(text, 0);
}

absl::StatusOr<std::optional<ObjectSelection>> ObjectSelection::Parse(std::string_view uri) {
  ASSIGN_OR_RETURN(const std::vector<std::string> uris, ExpandBraces(uri));
  const bool wildcard = std::any_of(uris.begin(), uris.end(), [](const std::string& one) { return HasWildcard(one); });
  if (uris.size() == 1 && !wildcard) return std::nullopt;
  std::string root;
  std::vector<std::string> patterns;
  for (const std::string& one : uris) {
    ASSIGN_OR_RETURN(Rooted rooted, SplitAtRoot(one));
    if (root.empty()) root = rooted.root;
    if (rooted.root != root) {
      return absl::InvalidArgumentError(fmt::format(
          "{}: {} and {} are different stores, and a data set lies in one; mix data sets (several URIs for `feed`, "
          "in Python millrace.Mix)",
          uri, root, rooted.root));
    }
    patterns.push_back(std::move(rooted.pattern));
  }
  std::string common = PatternFolder(patterns.front());
  for (const std::string& pattern : patterns) {
    common = CommonBeginning(common, PatternFolder(pattern));
    common.resize(common.rfind('/') + 1);
  }
  ObjectSelection selection;
  selection.folder_ = root + common;
  // The part of a pattern that is in `common` has no wildcards. Backslashes in it are rare enough to be passed over one
  // by one.
  for (std::string& pattern : patterns) {
    size_t taken = 0;
    for (size_t left = common.size(); left > 0; --left) taken += pattern[taken] == '\\' ? 2 : 1;
    pattern.erase(0, taken);
    selection.Add(pattern);
  }
  selection.first_folder_ = PatternFolder(patterns.front());
  selection.FindPrefixes(patterns);
  return selection;
}

void ObjectSelection::Add(const std::string& pattern) {
  const bool of_folders = pattern.ends_with('/');
  const std::string name = pattern.substr(0, pattern.size() - (of_folders ? 1 : 0));
  if (name.empty()) {
    all_ = true;
  } else if (IsLiteral(name)) {
    (of_folders ? folders_ : names_).insert(GlobLiteralPrefix(name));
  } else {
    Glob glob{.pattern = name, .of_folders = of_folders, .slashes = std::nullopt};
    if (name.find("**") == std::string::npos)
      glob.slashes = static_cast<size_t>(std::count(name.begin(), name.end(), '/'));
    globs_.push_back(std::move(glob));
  }
}

void ObjectSelection::FindPrefixes(const std::vector<std::string>& patterns) {
  std::map<std::string, std::vector<std::string>> by_folder;
  for (const std::string& pattern : patterns) {
    const std::string literal = GlobLiteralPrefix(pattern);
    by_folder[literal.substr(0, literal.rfind('/') + 1)].push_back(literal);
  }
  std::vector<std::string> all;
  for (auto& [folder, literals] : by_folder) {
    if (literals.size() > kMostPrefixesOfFolder) {
      std::string common = literals.front();
      for (const std::string& literal : literals) common = CommonBeginning(common, literal);
      literals = {common};
    }
    std::move(literals.begin(), literals.end(), std::back_inserter(all));
  }
  std::sort(all.begin(), all.end());
  for (std::string& prefix : all) {
    if (prefixes_.empty() || !prefix.starts_with(prefixes_.back())) prefixes_.push_back(std::move(prefix));
  }
}

bool ObjectSelection::Contains(std::string_view key) const {
  if (all_ || names_.contains(key)) return true;
  size_t slashes = 0;
  const auto matches = [&](std::string_view name, bool is_folder) {
    return std::any_of(globs_.begin(), globs_.end(), [&](const Glob& glob) {
      return (is_folder || !glob.of_folders) && (!glob.slashes || *glob.slashes == slashes) &&
             GlobMatches(glob.pattern, name);
    });
  };
  for (size_t slash = key.find('/'); slash != key.npos; slash = key.find('/', slash + 1), ++slashes) {
    const std::string_view folder = key.substr(0, slash);
    if (names_.contains(folder) || folders_.contains(folder) || matches(folder, true)) return true;
  }
  return matches(key, false);
}

std::vector<std::string> ObjectSelection::Names() const {
  std::vector<std::string> names(names_.begin(), names_.end());
  names.insert(names.end(), folders_.begin(), folders_.end());
  return names;
}

std::string ObjectSelection::Id() const {
  Xxh3Stream stream;
  const auto add = [&stream](std::string_view text) {
    stream.UpdateLe64(text.size());
    stream.Update(AsBytes(text));
  };
  std::vector<std::string> globs;
  for (const Glob& glob : globs_) globs.push_back(glob.pattern + (glob.of_folders ? "/" : ""));
  std::sort(globs.begin(), globs.end());
  add(all_ ? "all" : "");
  for (const NameSet* names : {&names_, &folders_}) {
    stream.UpdateLe64(names->size());
    for (const std::string& name : *names) add(name);
  }
  for (const std::string& glob : globs) add(glob);
  return stream.Digest().Hex().substr(0, 16);
}

}  // namespace millrace
