#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aws/endpoint.h"
#include "base/status.h"
#include "supervisor/attempt_watch.h"
#include "supervisor/restart_policy.h"
#include "supervisor/run_journal.h"

namespace millrace {

struct SupervisorOptions {
  std::vector<std::string> command;              // the program, looked for in PATH, and its arguments
  std::vector<std::string> secrets;              // texts that messages and the journal do not show
  std::string folder;                            // in which it runs; "": that of this program
  std::string code;                              // the commit of its code, for the journal; "": not known
  std::string checkpoint;                        // URI of its checkpoints; "": not told
  std::map<std::string, std::string> variables;  // of its environment, in place of inherited ones
  /// The command may have another supervisor above this one: MILLRACE_ATTEMPT and the like stay as they are, and
  /// SIGUSR1 and SIGUSR2 are passed on and not notices.
  bool inner = false;
  RestartOptions restart;
  AttemptLimits limits;
  std::optional<EndpointUrl> metadata_service;  // asked for notices
  std::string log_folder;                       // of the output of each attempt; "": it is not kept
  uint64_t log_bytes = 256 << 20;               // of each attempt, at most
  RunJournal* journal = nullptr;
  std::string failure_file;  // where the command says why it failed (failure_file.h); "": nowhere
  std::string on_success;    // shell commands, run once: after success,
  std::string on_end;        // and after any end
  std::chrono::milliseconds hook_limit{60 * 1000};
  double dollars_per_hour = 0;  // of this machine, for the end in the journal; 0: not known
  /// Says since when the machine works for the job, for the end in the journal; nullopt: since RunSupervised.
  std::optional<std::chrono::steady_clock::time_point> begun;
  /// Called once, before the first attempt: threads that it makes leave signals to the supervisor. May be empty; an
  /// error ends the job before it begins.
  std::function<absl::Status()> begin;
  /// Gets the events of the journal, whether there is one or not. May be empty.
  std::function<void(std::string_view event, const RunJournal::Fields& fields)> on_event;
  /// Called before each attempt, which is 1 for the first; may block. Its error is that of RunSupervised, and the
  /// caller writes the failure file then.
  std::function<absl::Status(uint64_t attempt)> before_attempt;
  /// Called after the last attempt, before the hooks; may block. Not if RunSupervised fails.
  std::function<void(JobOutcome)> before_end;
  /// Gets each event as one sentence, without its end.
  std::function<void(const std::string&)> say;
};

/// Runs a command until it succeeds, must not be restarted (restart_policy.h), or its retries are used up. Returns the
/// status of the last attempt, as shells say it: 128 + signal if a signal ended it, 127 and 126 if it cannot be
/// executed. The status is 124 if it hung and then exited with 0, and `requeue_exit` if this machine goes away. An
/// error if this process cannot supervise it; the failure file and the journal say so, and `on_end` runs, as after any
/// failure.
///
/// SIGTERM, SIGINT and SIGHUP, if they are not ignored (nohup), are passed on to the command, which is then not
/// restarted; its process group is killed after the grace. If a shell ends first, the processes that it has started get
/// the signal. SIGUSR1 and SIGUSR2 are final notices (attempt_watch.h). A process that a failed attempt leaves running
/// is killed before the next one starts. A process that a successful command leaves running gets SIGTERM. It gets
/// SIGKILL 30 seconds later, or after the grace if that is shorter. If the command had been asked to end, the process
/// is killed when the command would have been killed.
///
/// The command finds in its environment: MILLRACE_ATTEMPT, 1 for the first; MILLRACE_ATTEMPTS, how many there may be;
/// MILLRACE_CHECKPOINT, the URI of its checkpoints, if there is one; MILLRACE_HEARTBEAT and MILLRACE_NOTICE
/// (run_folder.h). If its output is logged or watched, it goes through this process.
///
/// Call it once, in a program without threads or children; it changes the program's signals.
absl::StatusOr<int> RunSupervised(const SupervisorOptions& options);

/// Takes the place of RunSupervised for a job that fails before its first attempt, with status 1. It writes the failure
/// file and the journal, and runs `on_end`.
void EndBeforeBegin(const SupervisorOptions& options, const std::string& why);

}  // namespace millrace
