#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "supervisor/group_board.h"

namespace millrace {

/// The behavior of one host in a job of several groups, from the start of its command until the job has ended. A state
/// machine without I/O, clock or threads.
///
///   GroupHost host({.grace = 3s}, {.signal = ..., .report = ..., ...});
///   while (!(status = host.Step(signal, ended, now))) ...
///
/// If the command ends, the coordinator gets a report, and this host waits for the end of the job. A host that serves
/// may leave with the status `may_leave_with`: it ends, and the others continue. SIGTERM asks it to do that. If the job
/// ends elsewhere, the command gets SIGTERM, and after `grace` a second one, which kills it. If another host is asked
/// to end, its command gets the signal, and the coordinator hears that the host leaves.
class GroupHost {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Options {
    std::chrono::milliseconds grace{0};
    std::optional<int> may_leave_with;
    bool is_job = false;  // the success of this host is that of the job
  };
  /// Represents the actions of a host, and its knowledge of the others.
  struct Actions {
    std::function<void(int signal)> signal;                   // to the command
    std::function<void(HostState state, int status)> report;  // to the coordinator
    std::function<void(HostState state, int status)> leave;   // the same, for a host that ends soon
    std::function<std::optional<JobVerdict>()> verdict;       // of the coordinator
    std::function<bool()> all_know;                           // all hosts have heard the verdict
    std::function<void(const std::string&)> say;
  };
  GroupHost(Options options, Actions actions) : options_(options), actions_(std::move(actions)) {}

  /// Call it after each signal that this program got, and whenever something may have changed; `ended` is the exit
  /// status of the command, once it has one. Returns the exit status of this host when nothing is left to do.
  std::optional<int> Step(std::optional<int> signal, std::optional<int> ended, Time now);

 private:
  void OnEnd(int status, Time now);
  bool OnSignal(int signal, Time now);
  void Leave(int status, Time now);
  bool LeavesAlone() const;
  bool OnVerdict(const JobVerdict& verdict, Time now);
  int EndStatus() const;

  const Options options_;
  const Actions actions_;
  std::optional<int> status_;   // of the command
  int stop_ = 0;                // the signal that asks this host to end; 0: none
  std::optional<Time> leaves_;  // since then, before the job has ended
  int leaves_with_ = 0;
  std::optional<Time> heard_;  // how the job ends
  std::optional<Time> killed_;
};

}  // namespace millrace
