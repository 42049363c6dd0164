#include "supervisor/restart_policy.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

#include <algorithm>

namespace millrace {

namespace {

constexpr std::chrono::minutes kLongRun{1};
constexpr std::chrono::milliseconds kMaxDelay = std::chrono::minutes(1);
constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;

}  // namespace

RestartPolicy::Decision RestartPolicy::OnEnd(const AttemptEnd& end) {
  if (end.status == 0) return {};
  if (end.stopped) return {.why = "it was asked to end"};
  if (end.status == 128 + SIGINT) return {.why = "it was interrupted"};
  if (end.signal == 0 && (end.status == kNotExecutable || end.status == kNotFound))
    return {.why = "it cannot be executed"};
  if (used_ == retries_) return {.why = retries_ == 0 ? "there are no retries" : "all retries are used up"};
  ++used_;
  in_a_row_ = end.ran >= kLongRun ? 1 : in_a_row_ + 1;
  const std::chrono::milliseconds most = std::max(kMaxDelay, delay_);
  std::chrono::milliseconds delay = delay_;
  for (uint64_t i = 1; i < in_a_row_ && delay < most; ++i) delay *= 2;
  return {.restart = true, .delay = std::min(delay, most), .why = {}};
}

std::string EndText(const AttemptEnd& end) {
  if (end.signal == 0) return fmt::format("exited with status {}", end.status);
  const char* const name = sigabbrev_np(end.signal);
  return fmt::format("was killed by signal {}{}", end.signal, name == nullptr ? "" : fmt::format(" (SIG{})", name));
}

}  // namespace millrace
