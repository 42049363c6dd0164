#include "supervisor/job_commands.h"

#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <memory>

namespace millrace {

JobCommand AttemptCommand(const SupervisorOptions& options, uint64_t attempt, const RunFolder* folder,
                          const AttemptOutput* output) {
  JobCommand command{.words = options.command, .folder = options.folder, .variables = options.variables};
  if (!options.inner) {
    command.variables["MILLRACE_ATTEMPT"] = std::to_string(attempt);
    command.variables["MILLRACE_ATTEMPTS"] = std::to_string(options.restart.retries + 1);
    command.variables["MILLRACE_HEARTBEAT"] = folder->heartbeat_file();
    command.variables["MILLRACE_NOTICE"] = folder->notice_file();
    if (options.limits.hang_after) command.variables["MILLRACE_STACKS"] = folder->stacks_file();
  }
  if (!options.checkpoint.empty()) command.variables["MILLRACE_CHECKPOINT"] = options.checkpoint;
  if (output != nullptr) {
    command.output = output->output();
    command.errors = output->errors();
    // Output that waits in the buffer of a program is no sign of life, and is lost with the program.
    if (getenv("PYTHONUNBUFFERED") == nullptr) command.variables.emplace("PYTHONUNBUFFERED", "1");
  }
  return command;
}

JobCommand HookCommand(const SupervisorOptions& options, const std::string& command,
                       const RestartPolicy::Decision& decision, uint64_t attempt) {
  JobCommand hook{.words = {"sh", "-c", command}, .variables = options.variables};
  hook.variables["MILLRACE_OUTCOME"] = OutcomeWord(decision.outcome);
  hook.variables["MILLRACE_STATUS"] = std::to_string(decision.status);
  hook.variables["MILLRACE_ATTEMPT"] = std::to_string(attempt);
  if (!options.checkpoint.empty()) hook.variables["MILLRACE_CHECKPOINT"] = options.checkpoint;
  return hook;
}

std::optional<RunJournal::Fields> RunJobHook(SupervisorProcess& process, const SupervisorOptions& options,
                                             const char* name, const JobCommand& hook) {
  using Milliseconds = std::chrono::milliseconds;
  constexpr Milliseconds kKillAgain{1'000};
  const absl::StatusOr<std::unique_ptr<JobProcess>> job = JobProcess::Start(process, hook);
  if (!job.ok()) {
    options.say(fmt::format("--{}: {}", name, ToStd(job.status().message())));
    return std::nullopt;
  }
  const auto until = std::chrono::steady_clock::now() + options.hook_limit;
  std::string why;
  std::optional<int> status;
  while (!(status = (*job)->Ended())) {
    int signal = 0;
    const auto left = std::chrono::ceil<Milliseconds>(until - std::chrono::steady_clock::now());
    const SupervisorEvent event = process.Wait(why.empty() ? std::max(Milliseconds(0), left) : kKillAgain, &signal);
    if (event == SupervisorEvent::kStop) why = fmt::format("{} came", SignalName(signal));
    if (event == SupervisorEvent::kTime && why.empty())
      why = fmt::format("it did not end within {}", SecondsText(options.hook_limit));
    if (!why.empty()) (*job)->Signal(SIGKILL);
  }
  (*job)->Release();
  const int code = WIFSIGNALED(*status) ? 128 + WTERMSIG(*status) : WEXITSTATUS(*status);
  if (!why.empty()) {
    options.say(fmt::format("--{} was killed, since {}", name, why));
  } else if (code != 0) {
    options.say(fmt::format("--{} exited with status {}", name, code));
  }
  return RunJournal::Fields{{"name", std::string(name)}, {"status", int64_t{code}}, {"why", why}};
}

}  // namespace millrace
