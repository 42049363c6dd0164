#include "supervisor/restart_policy.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

#include <algorithm>

namespace millrace {

namespace {

constexpr std::chrono::minutes kLongRun{1};
constexpr std::chrono::seconds kFastFailure{10};
constexpr std::chrono::milliseconds kMaxDelay = std::chrono::minutes(1);
constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;
constexpr int kTimedOut = 124;  // as timeout(1) says it

bool CannotStart(const AttemptEnd& end) {
  return end.signal == 0 && (end.status == kNotExecutable || end.status == kNotFound);
}

// It counts also if the shell that ran the program says so; 255, for one, is no status of a signal.
bool WasKilled(const AttemptEnd& end) {
  return end.signal != 0 || (end.status > 128 && end.status <= 128 + SIGRTMAX);
}

}  // namespace

std::string_view OutcomeWord(JobOutcome outcome) {
  switch (outcome) {
    case JobOutcome::kSuccess:
      return "success";
    case JobOutcome::kFailure:
      return "failure";
    case JobOutcome::kStopped:
      return "stopped";
    case JobOutcome::kElsewhere:
      return "elsewhere";
  }
  return "";
}

RestartPolicy::Decision RestartPolicy::OnEnd(const AttemptEnd& end) {
  // A program that ends well when it is asked to has not done its work all the same.
  Decision decision{.status = end.hang && end.status == 0 ? kTimedOut : end.status};
  const auto finally = [&](JobOutcome outcome, std::string why) {
    decision.outcome = outcome;
    decision.why = std::move(why);
    return decision;
  };
  if (end.leaves || (end.advised && end.status == 0)) {
    decision.status = options_.requeue_exit;
    return finally(JobOutcome::kElsewhere,
                   fmt::format("the job must continue on another machine: status {}", options_.requeue_exit));
  }
  if (end.stopped) return finally(JobOutcome::kStopped, end.status == 0 ? "" : "it was asked to end");
  if (decision.status == 0 && !options_.serves) return finally(JobOutcome::kSuccess, "");
  if (end.status == 128 + SIGINT && !options_.serves) return finally(JobOutcome::kStopped, "it was interrupted");
  const ExitRule* const rule = FindExitRule(options_.rules, {.code = decision.status, .reason = ReasonText(end)});
  if (decision.status == 0)
    return rule != nullptr && !rule->restart ? finally(JobOutcome::kSuccess, "")
                                             : RestartLater(end, std::move(decision));
  if (rule != nullptr && !rule->restart)
    return finally(JobOutcome::kFailure, fmt::format("the rule {} ends the job", rule->text));
  if (rule == nullptr) {
    if (CannotStart(end)) return finally(JobOutcome::kFailure, "it cannot be executed");
    if (end.signal == 0 && end.status == options_.requeue_exit)
      return finally(JobOutcome::kElsewhere, "this status asks for another machine");
    if (options_.serves && WasKilled(end)) return RestartLater(end, std::move(decision));
  }
  return Restart(end, std::move(decision));
}

RestartPolicy::Decision RestartPolicy::Restart(const AttemptEnd& end, Decision decision) {
  fast_ = end.ran < kFastFailure ? fast_ + 1 : 0;
  if (used_ == options_.retries) {
    decision.why = options_.retries == 0 ? "there are no retries" : "all retries are used up";
    return decision;
  }
  if (options_.fast_failures > 0 && fast_ >= options_.fast_failures) {
    decision.why = fmt::format(
        "that was failure {} in a row within {} s of its start, so that more retries are of no use; correct what it "
        "says "
        "above, or give --fast-failures 0",
        fast_, kFastFailure.count());
    return decision;
  }
  ++used_;
  return RestartLater(end, std::move(decision));
}

RestartPolicy::Decision RestartPolicy::RestartLater(const AttemptEnd& end, Decision decision) {
  in_a_row_ = end.ran >= kLongRun ? 1 : in_a_row_ + 1;
  const std::chrono::milliseconds most = std::max(kMaxDelay, options_.delay);
  std::chrono::milliseconds delay = options_.delay;
  for (uint64_t i = 1; i < in_a_row_ && delay < most; ++i) delay *= 2;
  decision.restart = true;
  decision.delay = std::min(delay, most);
  return decision;
}

std::string SignalName(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name == nullptr ? std::to_string(signal) : fmt::format("SIG{}", name);
}

std::string EndText(const AttemptEnd& end) {
  const char* const hung = end.hang ? "hung and " : "";
  if (end.signal == 0) return fmt::format("{}exited with status {}", hung, end.status);
  const char* const name = sigabbrev_np(end.signal);
  return fmt::format("{}was killed by signal {}{}{}", hung, end.signal,
                     name == nullptr ? "" : fmt::format(" (SIG{})", name),
                     end.out_of_memory && !end.hang ? ", since memory was exhausted" : "");
}

std::string ReasonText(const AttemptEnd& end) {
  if (end.hang) return "Hang: no output and no heartbeat";
  if (end.out_of_memory) return "OutOfMemoryError: the kernel killed a process";
  if (end.signal != 0) return fmt::format("Signal: {}", SignalName(end.signal));
  return CannotStart(end) ? "CannotStartError: it cannot be executed" : "";
}

}  // namespace millrace
