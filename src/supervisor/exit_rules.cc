#include "supervisor/exit_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"

namespace millrace {

namespace {

using nlohmann::json;

constexpr int kMaxCode = 255;
constexpr int kMaxAttempts = 10'000;
constexpr size_t kMaxPattern = 512;

bool IsMatch(std::string_view pattern, std::string_view text) {
  if (!pattern.ends_with('*')) return pattern == text;
  pattern.remove_suffix(1);
  return text.starts_with(pattern);
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

std::optional<int> Number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 || number > kMaxCode) return std::nullopt;
  return number;
}

absl::Status CheckPattern(std::string_view pattern) {
  if (pattern.empty() || pattern.size() > kMaxPattern)
    return absl::InvalidArgumentError(fmt::format("a pattern has 1 to {} characters", kMaxPattern));
  if (pattern.find('*') < pattern.size() - 1)
    return absl::InvalidArgumentError(fmt::format("'{}' has a '*' that is not at its end", pattern));
  return absl::OkStatus();
}

absl::Status CheckCode(std::string_view pattern) {
  RETURN_IF_ERROR(CheckPattern(pattern));
  const std::string_view digits = pattern.ends_with('*') ? pattern.substr(0, pattern.size() - 1) : pattern;
  if (digits.empty() || Number(digits)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("'{}' is no exit code; give 0 to {}, or its first digits and '*'", pattern, kMaxCode));
}

absl::Status TakeCondition(std::string_view condition, ExitRule& rule) {
  const size_t equals = condition.find('=');
  const std::string_view name = condition.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? "" : condition.substr(equals + 1);
  if (name == "code") {
    const size_t dots = value.find("..");
    if (dots == std::string_view::npos) {
      RETURN_IF_ERROR(CheckCode(value));
      rule.code = value;
      return absl::OkStatus();
    }
    const std::optional<int> first = Number(value.substr(0, dots));
    const std::optional<int> last = Number(value.substr(dots + 2));
    if (!first || !last || *first > *last)
      return absl::InvalidArgumentError(fmt::format("'{}' is no range of exit codes, such as 64..78", value));
    rule.code_range = {*first, *last};
    return absl::OkStatus();
  }
  if (name != "reason" && name != "status-reason")
    return absl::InvalidArgumentError(fmt::format("'{}' is none of code=, reason= and status-reason=", condition));
  RETURN_IF_ERROR(CheckPattern(value));
  (name == "reason" ? rule.reason : rule.status_reason) = value;
  return absl::OkStatus();
}

absl::StatusOr<bool> TakeAction(std::string_view text) {
  const std::string action = Lower(text);
  if (action == "retry" || action == "exit") return action == "retry";
  return absl::InvalidArgumentError(fmt::format("'{}' is no action; give retry or exit", text));
}

absl::StatusOr<ExitRule> TakeRule(const json& object) {
  if (!object.is_object()) return absl::InvalidArgumentError("it is not a JSON object");
  ExitRule rule;
  bool has_action = false;
  for (const auto& [name, value] : object.items()) {
    if (!value.is_string()) return absl::InvalidArgumentError(fmt::format("its {} is not a string", name));
    const std::string text = value.get<std::string>();
    if (name == "action") {
      ASSIGN_OR_RETURN(rule.restart, TakeAction(text));
      has_action = true;
    } else if (name == "onExitCode") {
      RETURN_IF_ERROR(CheckCode(text));
      rule.code = text;
    } else if (name == "onReason" || name == "onStatusReason") {
      RETURN_IF_ERROR(CheckPattern(text));
      (name == "onReason" ? rule.reason : rule.status_reason) = text;
    } else {
      return absl::InvalidArgumentError(
          fmt::format("'{}' is none of onExitCode, onReason, onStatusReason and action", name));
    }
  }
  if (!has_action) return absl::InvalidArgumentError("it has no action; add \"action\": \"RETRY\" or \"EXIT\"");
  rule.text = object.dump();
  return rule;
}

}  // namespace

bool ExitRule::Matches(const ExitFacts& facts) const {
  return (!code || IsMatch(*code, std::to_string(facts.code))) &&
         (!code_range || (facts.code >= code_range->first && facts.code <= code_range->second)) &&
         (!reason || IsMatch(*reason, facts.reason)) &&
         (!status_reason || IsMatch(*status_reason, facts.status_reason));
}

const ExitRule* FindExitRule(const std::vector<ExitRule>& rules, const ExitFacts& facts) {
  const auto at = std::ranges::find_if(rules, [&](const ExitRule& rule) { return rule.Matches(facts); });
  return at == rules.end() ? nullptr : &*at;
}

absl::StatusOr<ExitRule> ParseExitRule(std::string_view text) {
  const auto fail = [&](const absl::Status& why) { return Annotate(why, fmt::format("'{}'", text)); };
  // A pattern may hold colons.
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos)
    return fail(absl::InvalidArgumentError("it has no action; write CONDITION:retry or CONDITION:exit"));
  ExitRule rule{.text = std::string(text)};
  const absl::StatusOr<bool> restart = TakeAction(text.substr(colon + 1));
  if (!restart.ok()) return fail(restart.status());
  rule.restart = *restart;
  for (const absl::string_view condition : absl::StrSplit(ToAbsl(text.substr(0, colon)), ',')) {
    if (const absl::Status taken = TakeCondition(ToStd(condition), rule); !taken.ok()) return fail(taken);
  }
  return rule;
}

absl::StatusOr<RetryStrategy> ParseRetryStrategy(std::string_view text) {
  json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_object() && parsed.contains("retryStrategy")) parsed = json(parsed["retryStrategy"]);
  RetryStrategy strategy;
  if (parsed.is_object()) {
    if (const auto at = parsed.find("attempts"); at != parsed.end()) {
      if (!at->is_number_unsigned() || at->get<uint64_t>() < 1 || at->get<uint64_t>() > kMaxAttempts)
        return absl::InvalidArgumentError(fmt::format("attempts is not a number from 1 to {}", kMaxAttempts));
      strategy.attempts = at->get<int>();
    }
    const auto at = parsed.find("evaluateOnExit");
    if (at == parsed.end() && !strategy.attempts)
      return absl::InvalidArgumentError("it has neither attempts nor evaluateOnExit");
    parsed = at == parsed.end() ? json::array() : json(*at);
  }
  if (!parsed.is_array()) {
    return absl::InvalidArgumentError(
        R"(it is not JSON of the form {"attempts": 3, "evaluateOnExit": [{"onExitCode": "1*", "action": "EXIT"}]})");
  }
  for (const json& one : parsed) {
    absl::StatusOr<ExitRule> rule = TakeRule(one);
    if (!rule.ok()) return Annotate(rule.status(), fmt::format("rule {}", strategy.rules.size() + 1));
    strategy.rules.push_back(*std::move(rule));
  }
  return strategy;
}

}  // namespace millrace
