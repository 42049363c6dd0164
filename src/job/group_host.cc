#include "job/group_host.h"

#include <fmt/format.h>
#include <signal.h>

#include "supervisor/restart_policy.h"

namespace millrace {

namespace {

// The coordinator waits this long for hosts to hear how the job has ended.
constexpr std::chrono::seconds kHearWithin{5};
// After the command was killed, its supervisor is killed, too, when this time has passed.
constexpr std::chrono::seconds kSupervisorEnds{2};
// The exit status of a process that signal N has ended is this and N.
constexpr int kSignalled = 128;

}  // namespace

std::optional<int> GroupHost::Step(std::optional<int> signal, std::optional<int> ended, Time now) {
  if (!status_ && ended) OnEnd(*ended, now);
  if (signal && OnSignal(*signal, now)) return EndStatus();
  // A host that serves goes away, and the others continue.
  if (status_ && !heard_ && status_ == options_.may_leave_with) return status_;
  if (const std::optional<JobVerdict> verdict = actions_.verdict()) {
    if (OnVerdict(*verdict, now)) return verdict->status;
  } else if (leaves_ && now - *leaves_ >= kHearWithin) {
    return EndStatus();
  }
  return std::nullopt;
}

void GroupHost::OnEnd(int status, Time now) {
  status_ = status;
  if (LeavesAlone()) {
    // Its machine is taken away, as in an eviction: that is no end of the job.
    status_ = options_.may_leave_with;
    return actions_.say("SIGTERM came; this host serves, and leaves the job, which continues");
  }
  // Asked to end, it may have saved, and ended with 0: the job is not done.
  const bool done = status == 0 && options_.is_job;
  if (stop_ != 0 && !heard_ && !done && status != options_.may_leave_with)
    return Leave(status == 0 ? kSignalled + stop_ : status, now);
  if (status != options_.may_leave_with)
    actions_.report(status == 0 ? HostState::kSucceeded : HostState::kFailed, status);
  if (!actions_.verdict()) {
    actions_.say(fmt::format("the command of this host has ended with status {}; the job has not ended yet", status));
  }
}

// Asked to end, a host that serves leaves the job, and does not end it.
bool GroupHost::LeavesAlone() const {
  return options_.may_leave_with && stop_ == SIGTERM && !leaves_ && !actions_.verdict();
}

// True: there is nothing left to do.
bool GroupHost::OnSignal(int signal, Time now) {
  const bool notice = signal == SIGUSR1 || signal == SIGUSR2;
  const bool again = leaves_ || heard_;
  if (!notice) stop_ = signal;
  if (!status_) {
    actions_.signal(signal);
    return false;
  }
  if (notice) return false;  // there is nothing to save
  if (status_ == 0 && LeavesAlone()) {
    OnEnd(0, now);
    return false;
  }
  if (!again) Leave(kSignalled + signal, now);
  return again;
}

// The others hear that this host ends before the job has.
void GroupHost::Leave(int status, Time now) {
  leaves_ = now;
  leaves_with_ = status;
  actions_.say(fmt::format("{} came; this host leaves the job, which ends", SignalName(stop_)));
  actions_.leave(HostState::kFailed, status);
}

int GroupHost::EndStatus() const {
  const std::optional<JobVerdict> verdict = actions_.verdict();
  return verdict ? verdict->status : leaves_with_;
}

// True: there is nothing left to do.
bool GroupHost::OnVerdict(const JobVerdict& verdict, Time now) {
  if (!heard_) {
    heard_ = now;
    actions_.say(fmt::format("the job ends with status {}: {}", verdict.status, verdict.why));
    if (!status_) actions_.signal(SIGTERM);
  }
  if (!status_ && !killed_ && now - *heard_ >= options_.grace) {
    killed_ = now;
    actions_.signal(SIGTERM);  // the second one kills
  }
  if (!status_ && !(killed_ && now - *killed_ >= kSupervisorEnds)) return false;
  return actions_.all_know() || now - *heard_ >= kHearWithin;
}

}  // namespace millrace
