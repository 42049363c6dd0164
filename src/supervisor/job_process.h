#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"

namespace millrace {

/// Represents the events that a supervisor waits for: the end of a child, a signal that asks it to end, SIGUSR1 or
/// SIGUSR2, Wake, or a moment.
enum class SupervisorEvent { kChild, kStop, kNotice, kWake, kTime };

/// Blocks SIGUSR1 and SIGUSR2, unless they are ignored, so that a SupervisorProcess that is made later gets those that
/// come meanwhile. Before there are other threads.
void HoldNotices();

/// Represents this process as a supervisor. It blocks the signals that it waits for, for the rest of the program and
/// all threads that it starts. Orphans of its descendants become its children. It is made before there are other
/// threads.
class SupervisorProcess {
 public:
  SupervisorProcess();

  /// Returns when an event comes; `limit` nullopt: waits for as long as it takes. A signal that came goes to `signal`.
  SupervisorEvent Wait(std::optional<std::chrono::milliseconds> limit, int* signal);
  /// Makes Wait return kWake soon. Thread-safe.
  static void Wake();
  /// For PR_SET_PDEATHSIG, in this process: Wait returns it as SIGTERM, once. The kernel sends such a signal again for
  /// each thread of the parent, and a second SIGTERM would mean that somebody has lost patience.
  static int ParentDeathSignal();
  /// Returns the descriptors beyond standard error that this program was given for its commands.
  const std::vector<int>& given_fds() const { return given_fds_; }

 private:
  const std::vector<int> given_fds_;
  bool parent_died_ = false;
};

/// Represents the program that JobProcess executes.
struct JobCommand {
  std::vector<std::string> words;                // the program, looked for in PATH, and its arguments
  std::string folder;                            // in which it runs; "": that of this process
  std::map<std::string, std::string> variables;  // of its environment, in place of inherited ones
  int output = -1;                               // its standard output; -1: that of this process
  int errors = -1;                               // its standard error, likewise
};

/// Represents a command and all that it starts. One at a time, in a process that is a SupervisorProcess and has no
/// other children. Not thread-safe.
class JobProcess {
 public:
  /// Starts it in a process group of its own, with signals as this program was given them. Its standard input is this
  /// process's, or /dev/null if that is a terminal: a group in the background may not read from one. If this process
  /// dies, the command gets SIGTERM. NotFound or PermissionDenied if the program cannot be executed.
  static absl::StatusOr<std::unique_ptr<JobProcess>> Start(const SupervisorProcess& supervisor,
                                                           const JobCommand& command);
  /// Kills what is left.
  ~JobProcess();
  JobProcess(const JobProcess&) = delete;
  JobProcess& operator=(const JobProcess&) = delete;

  pid_t pid() const { return pid_; }
  /// Returns the status of waitpid for the command itself, once it has ended. It also reaps other descendants that have
  /// ended.
  std::optional<int> Ended();
  /// Returns true if a process of its group is there.
  bool HasGroup() const;
  /// Sends it to the command itself; SIGKILL to all of its process group. The workers of a trainer, to which only
  /// SIGKILL goes, must live until it has saved. The parent informs its children, or leaves them to PassOn.
  void Signal(int signal);
  /// Sends the last signal of the command, which has ended, to those of the group whose parent has ended. The program
  /// that a shell has started is one. Each process gets the signal once. Call it after Ended.
  void PassOn();
  /// Kills it and all its descendants, also those that have left the group, and waits until they are gone. False if
  /// some are still there after ten seconds: they hang within the kernel.
  bool KillAll();
  void KillGroup() const;
  struct Left {
    size_t told = 0;   // processes that got SIGTERM
    bool gone = true;  // false: some hang within the kernel
  };
  /// Ends what the command, which has ended, has left: SIGTERM to each, and KillAll if some are there after `limit`.
  Left EndLeft(std::chrono::milliseconds limit);
  /// Leaves alone what is still running.
  void Release() { alone_ = true; }

 private:
  explicit JobProcess(pid_t pid) : pid_(pid) {}

  const pid_t pid_;
  std::optional<int> status_;
  int signal_ = 0;             // the last one; 0: none
  std::set<pid_t> signalled_;  // that got it
  bool alone_ = false;         // there are no descendants any more
};

}  // namespace millrace
