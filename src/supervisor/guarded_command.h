#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/status.h"
#include "base/unique_fd.h"

namespace millrace {

/// A command under a supervisor (RunSupervised) that is a process of its own, so that this program may have threads and
/// other children meanwhile. If this program dies, the command gets SIGTERM, once, and its time to end.
class GuardedCommand {
 public:
  /// Makes the process of the supervisor, in which `supervise` runs after Begin; its result is the exit status. Blocks
  /// the signals that Watch takes, for the rest of the program. Call it once, before there are threads.
  static absl::StatusOr<std::unique_ptr<GuardedCommand>> Prepare(const std::function<int()>& supervise);
  /// Kills the supervisor, if it has not ended, and so the command.
  ~GuardedCommand();
  GuardedCommand(const GuardedCommand&) = delete;
  GuardedCommand& operator=(const GuardedCommand&) = delete;

  /// Once.
  void Begin();
  /// Decides after each event. `signal` is SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2, as far as they are not ignored;
  /// nullopt if a child has ended, after Wake, and when the time has come. `ended` is Ended().
  using Step = std::function<std::optional<int>(std::optional<int> signal, std::optional<int> ended)>;
  /// Waits for signals, ends of children, Wake and the moment `at`, and calls `step` for each. Returns the first result
  /// that `step` has.
  int Watch(const Step& step, std::optional<std::chrono::steady_clock::time_point> at = std::nullopt);
  /// Makes Watch call its step. Thread-safe.
  static void Wake();
  /// Sends a signal to the supervisor.
  void Signal(int signal) const;
  /// Returns the exit status of the supervisor, 128 + signal if a signal has ended it.
  std::optional<int> Ended();

 private:
  GuardedCommand(pid_t pid, UniqueFd begin) : pid_(pid), begin_(std::move(begin)) {}

  const pid_t pid_;
  UniqueFd begin_;
  std::optional<int> status_;
};

}  // namespace millrace
