#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace millrace {

struct SupervisorOptions {
  std::vector<std::string> command;              // the program, looked for in PATH, and its arguments
  std::string checkpoint;                        // URI of its checkpoints; "": not told
  std::map<std::string, std::string> variables;  // of its environment, in place of inherited ones
  bool tells_attempts = true;                    // false: MILLRACE_ATTEMPT and MILLRACE_ATTEMPTS stay as they are
  uint64_t retries = 0;
  std::chrono::milliseconds delay{1000};        // before the first restart (restart_policy.h)
  std::chrono::milliseconds grace{120 * 1000};  // from the signal that asks to end to SIGKILL
  /// Told what happens, one sentence each, without its end.
  std::function<void(const std::string&)> journal;
};

/// Runs a command until it succeeds, must not be restarted, or its retries are used up. Returns the status of the last
/// attempt, as shells say it: 128 + signal if a signal ended it, 127 and 126 if it cannot be executed.
///
/// SIGTERM, SIGINT and SIGHUP, if they are not ignored (nohup), are passed on to the process group of the command,
/// which is then not restarted; a second one, or the end of `grace`, kills it. What a failed attempt leaves running is
/// killed before the next one starts.
///
/// The command finds in its environment: MILLRACE_ATTEMPT, 1 for the first; MILLRACE_ATTEMPTS, how many there may be;
/// MILLRACE_CHECKPOINT, the URI of its checkpoints, if there is one.
///
/// Call it once, in a program without threads or children; it changes the program's signals and environment.
int RunSupervised(const SupervisorOptions& options);

}  // namespace millrace
