#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace millrace {

/// The state of the command of one host of a job, as the host reports it.
enum class HostState : uint8_t {
  kRuns,
  kSucceeded,
  kFailed,  // for good: it is not started again
};

/// Represents the end of a job of several groups of hosts.
struct JobVerdict {
  int status = 0;
  std::string why;
};

/// The state of the hosts of such a job, as its coordinator knows it, and the time when all of them have to end. One
/// group is the main one, such as the trainers; the others serve it. The job ends
///
/// - with success when all hosts of the main group have succeeded,
/// - with the status of a host that fails for good, of any group,
/// - with `lost_status` when a host of the main group does not report any more, after it was there. A host of another
///   group may go away: the main group continues without it,
/// - with status 1 when not all hosts of the main group have appeared in time.
///
/// Pure: the caller brings the time. Not thread-safe.
class GroupBoard {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Options {
    std::string main;              // the name of the main group
    uint64_t main_hosts = 1;       // how many it has
    std::set<std::string> groups;  // names of all
    int lost_status = 75;
    std::chrono::milliseconds lost_after{6'000};
    std::chrono::milliseconds appear_within{std::chrono::minutes(15)};
  };

  GroupBoard(Options options, Time now) : options_(std::move(options)), begin_(now) {}

  /// A host has said how it is. False: there is no such group.
  bool OnReport(const std::string& host, const std::string& group, HostState state, int status, Time now);
  /// The end of the job, once that is known; it does not change any more.
  const std::optional<JobVerdict>& Verdict(Time now);
  /// There is a verdict, and every host that is not lost has asked since, or has ended before.
  bool AllKnow(Time now) const;
  /// Returns hosts of groups that serve, of which nothing is heard any more; each once.
  std::set<std::string> TakeLost(Time now);

 private:
  struct Host {
    std::string group;
    HostState state = HostState::kRuns;
    int status = 0;
    Time heard;
    bool knows = false;
    bool lost_told = false;
  };
  bool IsLost(const Host& host, Time now) const { return now - host.heard > options_.lost_after; }

  const Options options_;
  const Time begin_;
  std::map<std::string, Host> hosts_;
  std::optional<JobVerdict> verdict_;
};

}  // namespace millrace
