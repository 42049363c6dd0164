#include "supervisor/attempt_watch.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>

#include "supervisor/restart_policy.h"

namespace millrace {

namespace {

// The supervisor itself needs this time before the announced one, to write its files.
constexpr std::chrono::milliseconds kMargin{5'000};
constexpr std::chrono::milliseconds kLeastTime{1'000};
constexpr std::chrono::milliseconds kLeftLimit{30'000};

}  // namespace

std::string SecondsText(std::chrono::milliseconds time) {
  return fmt::format("{:.1f} s", static_cast<double>(time.count()) / 1000);
}

AttemptWatch::Milliseconds AttemptWatch::TimeToEnd(std::optional<Milliseconds> left) const {
  return left ? std::max(*left - kMargin, kLeastTime) : limits_.grace;
}

AttemptWatch::Action AttemptWatch::OnStop(int signal, std::optional<Milliseconds> left, bool program_watches,
                                          Time now) {
  if (stopped_) {
    kill_at_ = now + limits_.grace;
    return {SIGKILL, "a second signal: the command is killed"};
  }
  stopped_ = true;
  KillBy(now + TimeToEnd(left));
  if (limits_.grace == AttemptLimits::kNoGraceLimit)
    return {signal, fmt::format("{} is passed on to the command", SignalName(signal))};
  const std::string time = SecondsText(std::chrono::duration_cast<Milliseconds>(*kill_at_ - now));
  if (signal == SIGTERM && program_watches)
    return {0, fmt::format("SIGTERM came: the command, which looks for notices, has {} to save and to end", time)};
  return {signal, fmt::format("{} is passed on to the command, which has {} to end", SignalName(signal), time)};
}

AttemptWatch::Action AttemptWatch::OnNotice(const Notice& notice, std::optional<Milliseconds> left,
                                            bool program_watches, Time now) {
  Action action{.text = NoticeText(notice)};
  const bool had_notice = leaves_;
  if (notice.final) {
    leaves_ = true;
    KillBy(now + TimeToEnd(left));
  } else if (limits_.notice_signal.value_or(0) == 0) {
    return action;
  }
  // A command that was asked to end already is not asked twice: its second signal may mean something else to it.
  if (had_notice || stopped_ || hang_) return action;
  action.signal = limits_.notice_signal.value_or(program_watches ? 0 : SIGTERM);
  if (!notice.final) advised_ = now;
  const std::string who =
      action.signal == 0 ? "the command" : fmt::format("the command gets {}, and", SignalName(action.signal));
  if (notice.final) {
    const auto time = std::chrono::duration_cast<Milliseconds>(*kill_at_ - now);
    action.text += fmt::format("; {} has {} to save and to end", who, SecondsText(time));
  } else {
    action.text += fmt::format("; {} may continue", who);
  }
  return action;
}

AttemptWatch::Action AttemptWatch::OnTime(Time now) {
  if (kill_at_) {
    if (now < *kill_at_) return {};
    kill_at_ = now + limits_.grace;
    return {SIGKILL, "the command has not ended in time and is killed"};
  }
  if (!limits_.hang_after || now - alive_ < *limits_.hang_after) return {};
  hang_ = true;
  KillBy(now + limits_.grace);
  return {SIGTERM,
          fmt::format("the command hangs: no output and no heartbeat for {}; it gets SIGTERM and has {} to end",
                      SecondsText(*limits_.hang_after), SecondsText(limits_.grace))};
}

AttemptWatch::Milliseconds AttemptWatch::LimitOfLeft(Time now) const {
  const Milliseconds limit = std::min(kLeftLimit, limits_.grace);
  if (!kill_at_) return limit;
  return std::clamp(std::chrono::duration_cast<Milliseconds>(*kill_at_ - now), Milliseconds(0), limit);
}

std::optional<AttemptWatch::Time> AttemptWatch::Next() const {
  if (kill_at_) return kill_at_;
  if (limits_.hang_after) return alive_ + *limits_.hang_after;
  return std::nullopt;
}

}  // namespace millrace
