#include "supervisor/supervisor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "supervisor/job_process.h"
#include "supervisor/restart_policy.h"

namespace millrace {

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

class JobSupervisor {
 public:
  explicit JobSupervisor(const SupervisorOptions& options)
      : options_(options), policy_(options.retries, options.delay) {}

  int Run() {
    BecomeSupervisor();
    for (const auto& [name, value] : options_.variables) setenv(name.c_str(), value.c_str(), 1);
    if (!options_.checkpoint.empty()) setenv("MILLRACE_CHECKPOINT", options_.checkpoint.c_str(), 1);
    if (options_.tells_attempts) setenv("MILLRACE_ATTEMPTS", std::to_string(options_.retries + 1).c_str(), 1);
    for (uint64_t attempt = 1;; ++attempt) {
      const AttemptEnd end = RunOnce(attempt);
      const RestartPolicy::Decision decision = policy_.OnEnd(end);
      Tell(attempt, end, decision);
      if (!decision.restart) return end.status;
      if (!Pause(decision.delay)) return end.status;
    }
  }

 private:
  AttemptEnd RunOnce(uint64_t attempt);
  AttemptEnd WaitFor(JobProcess& job);
  void Tell(uint64_t attempt, const AttemptEnd& end, const RestartPolicy::Decision& decision) const;
  bool Pause(Milliseconds delay) const;
  void Journal(const std::string& text) const { options_.journal(text); }

  const SupervisorOptions& options_;
  RestartPolicy policy_;
  bool started_ = false;  // the attempt was; else why not was said
};

std::string SignalName(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name == nullptr ? std::to_string(signal) : fmt::format("SIG{}", name);
}

std::string Seconds(Milliseconds time) {
  return fmt::format("{:.1f} s", static_cast<double>(time.count()) / 1000);
}

AttemptEnd JobSupervisor::RunOnce(uint64_t attempt) {
  if (options_.tells_attempts) setenv("MILLRACE_ATTEMPT", std::to_string(attempt).c_str(), 1);
  const Clock::time_point start = Clock::now();
  absl::StatusOr<std::unique_ptr<JobProcess>> job = JobProcess::Start(options_.command);
  started_ = job.ok();
  if (!started_) {
    Journal(std::string(ToStd(job.status().message())));
    const bool missing = absl::IsNotFound(job.status());
    return {.status = missing ? 127 : absl::IsPermissionDenied(job.status()) ? 126 : 1};
  }
  Journal(fmt::format("attempt {} of {}, process {}: {}", attempt, options_.retries + 1, (*job)->pid(),
                      fmt::join(options_.command, " ")));
  AttemptEnd end = WaitFor(**job);
  end.ran = std::chrono::duration_cast<Milliseconds>(Clock::now() - start);
  // What a program that succeeded leaves behind on purpose is its own business.
  if (end.status == 0) {
    (*job)->Release();
  } else if (!(*job)->KillAll()) {
    Journal("processes of this attempt cannot be killed; they hang within the kernel");
  }
  return end;
}

AttemptEnd JobSupervisor::WaitFor(JobProcess& job) {
  AttemptEnd end;
  std::optional<Clock::time_point> kill_at;  // once it was asked to end
  for (;;) {
    const std::optional<int> status = job.Ended();
    // Others of the group may be saving still: a shell, for one, ends before what it has started.
    if (status && !(end.stopped && job.HasGroup())) {
      end.signal = WIFSIGNALED(*status) ? WTERMSIG(*status) : 0;
      end.status = end.signal != 0 ? 128 + end.signal : WEXITSTATUS(*status);
      return end;
    }
    std::optional<Milliseconds> limit;
    if (kill_at) limit = std::max(Milliseconds(0), std::chrono::duration_cast<Milliseconds>(*kill_at - Clock::now()));
    int signal = 0;
    const SupervisorEvent event = WaitForEvent(limit, &signal);
    if (event == SupervisorEvent::kChild) continue;
    if (event == SupervisorEvent::kStop && !kill_at) {
      Journal(fmt::format("{} is passed on to the command, which has {} to end", SignalName(signal),
                          Seconds(options_.grace)));
      job.Signal(signal);
      kill_at = Clock::now() + options_.grace;
      end.stopped = true;
      continue;
    }
    Journal(event == SupervisorEvent::kStop ? "a second signal: the command is killed"
                                            : "the command has not ended in time and is killed");
    job.Signal(SIGKILL);
    kill_at = Clock::now() + options_.grace;
  }
}

void JobSupervisor::Tell(uint64_t attempt, const AttemptEnd& end, const RestartPolicy::Decision& decision) const {
  if (!started_ || (attempt == 1 && end.status == 0)) return;
  std::string text = fmt::format("attempt {} {} after {}", attempt, EndText(end), Seconds(end.ran));
  if (decision.restart) {
    text += fmt::format("; attempt {} of {} follows in {}", attempt + 1, options_.retries + 1, Seconds(decision.delay));
  } else if (!decision.why.empty()) {
    text += fmt::format("; {}", decision.why);
  }
  Journal(text);
}

// False if a signal asked to end meanwhile.
bool JobSupervisor::Pause(Milliseconds delay) const {
  const Clock::time_point until = Clock::now() + delay;
  for (;;) {
    const auto left = std::chrono::duration_cast<Milliseconds>(until - Clock::now());
    int signal = 0;
    const SupervisorEvent event = WaitForEvent(std::max(Milliseconds(0), left), &signal);
    if (event == SupervisorEvent::kTime) return true;
    if (event == SupervisorEvent::kChild) continue;
    Journal(fmt::format("{} came while the command was not running; it is not started again", SignalName(signal)));
    return false;
  }
}

}  // namespace

int RunSupervised(const SupervisorOptions& options) {
  return JobSupervisor(options).Run();
}

}  // namespace millrace
