#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace millrace {

/// Shares the memory of a worker between the jobs whose streams it serves. A single job may use all of it; each of n
/// jobs gets at least an n-th. Trainers choose the names of their jobs, but not their addresses (peers). Jobs that only
/// one peer has named therefore count together as one, so that a host that invents names takes nothing from the others.
/// If a job lacks its share, streams of jobs that have more are closed, and their trainers open them elsewhere. Pure,
/// and not thread-safe.
class JobShares {
 public:
  explicit JobShares(uint64_t total) : total_(total) {}

  uint64_t total() const { return total_; }

  struct Admission {
    bool admitted = false;
    std::vector<std::string> closed;  // sessions that make room; they are released already
  };
  /// A session of a job wants so much. It is admitted if it fits, after closing sessions of jobs that have more than
  /// their share, the newest first, if this one does not exceed its own. The first stream of a job and of a peer may
  /// exceed it.
  Admission Admit(const std::string& job, const std::string& peer, const std::string& session, uint64_t bytes);
  /// A session has ended. Unknown ones are none.
  void Release(const std::string& session);

  /// Returns what a job may have if all jobs want all they can have, with `job` of `peer` as one of them.
  uint64_t ShareOf(const std::string& job, const std::string& peer) const;
  uint64_t UsedBy(const std::string& job) const;

 private:
  struct Session {
    std::string job;
    std::string peer;
    uint64_t bytes = 0;
    uint64_t number = 0;  // the later, the larger
  };
  using Shares = std::map<std::string, uint64_t>;  // of each job
  Shares SharesWith(const std::string& job, const std::string& peer) const;
  std::optional<std::string> NewestOverShare(const std::string& but, const Shares& shares) const;

  uint64_t total_;
  uint64_t used_ = 0;
  uint64_t next_ = 0;
  std::map<std::string, Session> sessions_;
  std::map<std::string, uint64_t> jobs_;  // bytes that they have; never 0
};

}  // namespace millrace
