#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "supervisor/exit_rules.h"

namespace millrace {

/// Represents the end of one execution of a command.
struct AttemptEnd {
  int status = 0;  // its exit status; 128 + signal if a signal ended it, as shells say it
  int signal = 0;  // 0: it exited
  std::chrono::milliseconds ran{0};
  bool stopped = false;        // the supervisor was asked to end, and has passed that on
  bool hang = false;           // it gave no sign of life, and was ended for that
  bool leaves = false;         // this machine goes away, and the command was told so
  bool advised = false;        // it was just signalled that this machine may go away
  bool out_of_memory = false;  // the kernel killed one of its processes for lack of memory
};

/// Represents the state of a job after an attempt.
enum class JobOutcome {
  kSuccess,
  kFailure,
  kStopped,    // the supervisor was asked to end
  kElsewhere,  // it has to go on on another machine
};
/// "success", "failure", "stopped", "elsewhere"
std::string_view OutcomeWord(JobOutcome outcome);

struct RestartOptions {
  uint64_t retries = 0;
  std::chrono::milliseconds delay{1000};  // before the first restart
  std::vector<ExitRule> rules;
  uint64_t fast_failures = 4;  // so many in a row end the job; 0: any number may be
  int requeue_exit = 75;       // the exit status that asks for another machine
  bool serves = false;         // the command serves another one, which needs it for as long as it runs
};

/// Decides if and when a command is started again. Pure: no clock, no randomness.
///
/// There are `retries` + 1 attempts at most. No attempt follows in these cases:
/// - One has succeeded.
/// - One was asked to end, also by a SIGINT of its own terminal.
/// - One has ended on a machine that goes away, whatever its status: a program that saves and exits with 0 has not
///   finished. The same holds for status 0 soon after the advice to leave. The job's status is then `requeue_exit`.
/// - `fast_failures` attempts in a row have each failed within ten seconds.
/// Else the first of `rules` that matches decides. If there is none, no attempt follows one that could not be started
/// (status 126 or 127, as shells say it), or that asked for another machine (status `requeue_exit`).
///
/// A command that `serves` has no end of its own. If a signal has ended it, or it ends with 0 as servers do on SIGTERM,
/// an attempt always follows. No retry is used then. A rule for status 0 counts, too: `exit` makes it a success.
///
/// The delay is `delay` after the first failure. It doubles with each further one in a row, up to a minute or `delay`,
/// whichever is longer. An attempt that ran for a minute begins a new row.
class RestartPolicy {
 public:
  explicit RestartPolicy(RestartOptions options) : options_(std::move(options)) {}

  struct Decision {
    bool restart = false;
    std::chrono::milliseconds delay{0};
    std::string why;  // it is not restarted, though it did not succeed: a clause for a message; else ""
    JobOutcome outcome = JobOutcome::kFailure;  // if it is not restarted
    int status = 0;                             // of the job, if it is not restarted
  };
  Decision OnEnd(const AttemptEnd& end);

 private:
  Decision Restart(const AttemptEnd& end, Decision decision);
  Decision RestartLater(const AttemptEnd& end, Decision decision);

  const RestartOptions options_;
  uint64_t used_ = 0;
  uint64_t in_a_row_ = 0;  // failures, each within a minute
  uint64_t fast_ = 0;      // failures in a row, each within ten seconds
};

/// "exited with status 3", "was killed by signal 9 (SIGKILL)", "hung and was killed by ..."
std::string EndText(const AttemptEnd& end);
/// The reason as rules name it: "", "Signal: SIGSEGV", "Hang: ...", "OutOfMemoryError: ...", "CannotStartError: ...".
std::string ReasonText(const AttemptEnd& end);
/// "SIGTERM"
std::string SignalName(int signal);

}  // namespace millrace
