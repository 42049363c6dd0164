#include "devstore/faults.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "aws/sigv4.h"
#include "base/crypto.h"
#include "base/rng.h"
#include "devstore/s3_request.h"

namespace millrace {

namespace {

constexpr uint64_t kFaultDomain = 0x6661756c74;  // "fault"
constexpr uint64_t kMaxNumber = uint64_t{1} << 40;

absl::Status Bad(std::string_view spec, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("--fault '{}': {}", spec, what));
}

std::optional<uint64_t> Number(std::string_view text, uint64_t min, uint64_t max = kMaxNumber) {
  return ParseDecimal(text, min, max);
}

std::optional<double> Real(std::string_view text, double min, double max) {
  double value = 0;
  if (!absl::SimpleAtod(ToAbsl(text), &value) || !(value >= min && value <= max)) return std::nullopt;
  return value;
}

/// Splits "name=value"; the value of a word without '=' is absent.
std::pair<std::string_view, std::optional<std::string_view>> SplitWord(std::string_view word) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos) return {word, std::nullopt};
  return {word.substr(0, equals), word.substr(equals + 1)};
}

struct NamedKind {
  std::string_view name;
  FaultKind kind;
  std::string_view wants;  // its value, for messages; empty: it takes no value
  uint64_t min = 0;
  uint64_t max = kMaxNumber;
  bool optional = false;  // the value may be left out
};
constexpr uint64_t kDayMs = 86'400'000;
constexpr NamedKind kKinds[] = {
    {"status", FaultKind::kStatus, "an HTTP status from 300 to 599", 300, 599},
    {"error", FaultKind::kError, "STATUS:CODE, e.g. 400:ExpiredToken", 300, 599},
    {"retry-after", FaultKind::kRetryAfter, "seconds", 0, 86400},
    {"limit", FaultKind::kLimit, "requests a second, at least 1", 1},
    {"delay-ms", FaultKind::kDelay, "milliseconds", 0, kDayMs},
    {"rate", FaultKind::kRate, "bytes a second, at least 1", 1},
    {"stall", FaultKind::kStall, "BYTES:MILLISECONDS", 0, kDayMs},
    {"cut", FaultKind::kCut, "'head', 'head:BYTES' or an offset in bytes"},
    {"reset", FaultKind::kReset, "'head', 'head:BYTES' or an offset in bytes"},
    {"close", FaultKind::kClose, ""},
    {"chunked", FaultKind::kChunked, "an offset in bytes", 0, kMaxNumber, /*optional=*/true},
    {"flip", FaultKind::kFlip, "an offset in bytes"},
    {"wrong-range", FaultKind::kWrongRange, ""},
    {"short-range", FaultKind::kShortRange, ""},
    {"whole", FaultKind::kWholeBody, ""},
    {"new-etag", FaultKind::kNewETag, ""},
    {"error-in-200", FaultKind::kErrorIn200, ""},
    {"skip-key", FaultKind::kSkipKey, ""},
};

/// Parses the value of an action; returns false if it is not what the action wants.
bool ParseValue(std::string_view text, const NamedKind& named, FaultAction* action) {
  const size_t colon = text.find(':');
  if (named.kind == FaultKind::kError) {
    if (colon == std::string_view::npos) return false;
    action->code = text.substr(colon + 1);
    if (action->code.empty() || !std::all_of(action->code.begin(), action->code.end(), absl::ascii_isalnum))
      return false;
    text = text.substr(0, colon);
  } else if (named.kind == FaultKind::kStall) {
    const std::optional<uint64_t> offset = Number(text.substr(0, colon), 0);
    if (colon == std::string_view::npos || !offset) return false;
    action->offset = *offset;
    text = text.substr(colon + 1);
  } else if (named.kind == FaultKind::kCut || named.kind == FaultKind::kReset) {
    action->at_head = text == "head" || text.starts_with("head:");
    if (action->at_head) text = text == "head" ? "0" : text.substr(5);
  }
  const std::optional<uint64_t> value = Number(text, named.min, named.max);
  if (!value) return false;
  action->value = *value;
  if (named.kind != FaultKind::kStall) action->offset = *value;
  return true;
}

absl::StatusOr<FaultAction> ParseAction(std::string_view spec, std::string_view word) {
  const auto [name, value] = SplitWord(word);
  for (const NamedKind& named : kKinds) {
    if (named.name != name) continue;
    FaultAction action{.kind = named.kind};
    if (named.wants.empty()) {
      if (value) return Bad(spec, fmt::format("{} takes no value", name));
    } else if (!value && named.optional) {
      action.offset = kMaxNumber;
    } else if (!value || !ParseValue(*value, named, &action)) {
      return Bad(spec, fmt::format("{}= wants {}", name, named.wants));
    }
    return action;
  }
  std::string known;
  for (const NamedKind& named : kKinds) known.append(known.empty() ? "" : ", ").append(named.name);
  return Bad(spec, fmt::format("unknown action '{}'; there are {}", name, known));
}

absl::Status ParseOption(std::string_view spec, std::string_view word, FaultRule* rule) {
  constexpr double kMaxSeconds = 1e9;
  const auto [name, text] = SplitWord(word);
  const std::string_view value = text.value_or("");
  if (name == "p") {
    const auto p = Real(value, 0, 1);
    if (!p) return Bad(spec, "p= wants a probability from 0 to 1");
    rule->probability = *p;
  } else if (name == "after" || name == "count") {
    const auto n = Number(value, 0);
    if (!n) return Bad(spec, fmt::format("{}= wants a number", name));
    (name == "after" ? rule->after : rule->count) = *n;
  } else if (name == "from" || name == "until") {
    const auto s = Real(value, 0, kMaxSeconds);
    if (!s) return Bad(spec, fmt::format("{}= wants seconds", name));
    (name == "from" ? rule->from_s : rule->until_s) = *s;
  } else {
    return Bad(spec, fmt::format("unknown option '{}'; there are p=, after=, count=, from=, until=", name));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FaultRule> ParseFaultRule(std::string_view spec) {
  const std::vector<std::string> words = absl::StrSplit(ToAbsl(spec), absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
  if (words.size() < 3)
    return Bad(spec, "expected METHOD KEYGLOB ACTION [OPTION...], e.g. 'GET bucket/* status=503 p=0.3'");
  FaultRule rule;
  rule.method = words[0];
  for (const char c : rule.method) {
    if (rule.method != "*" && (c < 'A' || c > 'Z')) return Bad(spec, "METHOD is GET, HEAD, PUT, POST, DELETE or *");
  }
  for (const absl::string_view piece : absl::StrSplit(words[1], '*')) {
    std::optional<std::string> decoded = UriDecode(ToStd(piece));
    if (!decoded) return Bad(spec, "KEYGLOB has a broken %-escape (a '%' itself is %25)");
    rule.key_pieces.push_back(*std::move(decoded));
  }
  ASSIGN_OR_RETURN(rule.action, ParseAction(spec, words[2]));
  std::vector<std::string_view> seen;
  for (size_t i = 3; i < words.size(); ++i) {
    const std::string_view name = SplitWord(words[i]).first;
    for (const std::string_view other : seen) {
      if (other == name) return Bad(spec, fmt::format("{}= is given twice", name));
    }
    seen.push_back(name);
    RETURN_IF_ERROR(ParseOption(spec, words[i], &rule));
  }
  if (rule.from_s >= rule.until_s) return Bad(spec, "from= must be less than until=");
  return rule;
}

bool MatchesKey(const FaultRule& rule, std::string_view key) {
  const std::vector<std::string>& pieces = rule.key_pieces;
  if (!key.starts_with(pieces.front())) return false;
  if (pieces.size() == 1) return key.size() == pieces.front().size();
  key.remove_prefix(pieces.front().size());
  // The first place that fits between two stars is as good as any.
  for (size_t i = 1; i + 1 < pieces.size(); ++i) {
    const size_t at = key.find(pieces[i]);
    if (at == std::string_view::npos) return false;
    key.remove_prefix(at + pieces[i].size());
  }
  return key.ends_with(pieces.back());
}

uint64_t HashIdentity(uint64_t domain, uint64_t seed, const RequestIdentity& request) {
  return HashKey(domain, {seed, Xxh3(AsBytes(request.method)), Xxh3(AsBytes(request.key)), Xxh3(AsBytes(request.range)),
                          request.attempt});
}

FaultPlan::FaultPlan(std::vector<FaultRule> rules, uint64_t seed)
    : rules_(std::move(rules)), seed_(seed), states_(rules_.size()) {}

std::optional<FaultAction> FaultPlan::Draw(const RequestIdentity& request, std::chrono::steady_clock::time_point now) {
  std::lock_guard lock(mutex_);
  std::optional<FaultAction> action;
  for (size_t i = 0; i < rules_.size() && !action; ++i) {
    if (Acts(i, request, now)) action = rules_[i].action;
  }
  return action;
}

std::vector<uint64_t> FaultPlan::firings() const {
  std::lock_guard lock(mutex_);
  std::vector<uint64_t> firings;
  for (const RuleState& state : states_) firings.push_back(state.firings);
  return firings;
}

bool FaultPlan::Acts(size_t index, const RequestIdentity& request, std::chrono::steady_clock::time_point now) {
  const FaultRule& rule = rules_[index];
  RuleState& state = states_[index];
  if ((rule.method != "*" && rule.method != request.method) || !MatchesKey(rule, request.key)) return false;
  if (state.matches++ == 0) {
    state.first_match = now;
    if (rule.action.kind == FaultKind::kLimit) state.bucket.emplace(static_cast<double>(rule.action.value), now);
  }
  const double elapsed = std::chrono::duration<double>(now - state.first_match).count();
  if (state.matches <= rule.after || state.firings >= rule.count || elapsed < rule.from_s || elapsed >= rule.until_s) {
    return false;
  }
  const uint64_t hash = HashIdentity(HashKey(kFaultDomain, {index}), seed_, request);
  if (Rng(hash).Unit() >= rule.probability) return false;
  if (state.bucket && state.bucket->Take(now)) return false;  // within the limit
  ++state.firings;
  return true;
}

}  // namespace millrace
