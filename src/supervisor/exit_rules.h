#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace millrace {

/// The facts about a failed attempt that rules look at.
struct ExitFacts {
  int code = 0;        // 128 + N if signal N ended it
  std::string reason;  // "OutOfMemoryError: ...", "Signal: SIGSEGV"; or ""
  std::string status_reason = "Essential container in task exited";  // as AWS Batch says it of any end
};

/// One condition and action of `evaluateOnExit` of AWS Batch: all patterns that are given must match. A pattern is a
/// text, or the beginning of one followed by '*'.
struct ExitRule {
  std::optional<std::string> code;                // in decimal
  std::optional<std::pair<int, int>> code_range;  // both included
  std::optional<std::string> reason;
  std::optional<std::string> status_reason;
  bool restart = false;
  std::string text;  // as it was written, for messages

  bool Matches(const ExitFacts& facts) const;
};

/// Returns the first rule that matches; nullptr if none does.
const ExitRule* FindExitRule(const std::vector<ExitRule>& rules, const ExitFacts& facts);

/// "code=64..78:exit", "code=1*,reason=Hang*:retry": conditions with commas between them, then the action.
absl::StatusOr<ExitRule> ParseExitRule(std::string_view text);

struct RetryStrategy {
  std::optional<int> attempts;  // 1 to 10,000
  std::vector<ExitRule> rules;
};
/// A job definition of AWS Batch ({"retryStrategy": {...}}), its retryStrategy, or only the list of evaluateOnExit.
absl::StatusOr<RetryStrategy> ParseRetryStrategy(std::string_view json);

}  // namespace millrace
