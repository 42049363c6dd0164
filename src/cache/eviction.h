#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cache/planned_read.h"

namespace millrace {

/// Says where a job is in its plan.
struct JobClock {
  uint32_t job = 0;
  uint64_t clock = 0;   // no read that is still to come is for an earlier position
  uint64_t period = 1;  // positions of an epoch
};

/// Holds what UseHints::next_use says of a range that is read without a plan: when it was written, how often it was
/// read, and whether it has been found useful.
struct UnplannedUse {
  static constexpr uint64_t kMaxReads = 3;
  uint64_t written_ms = 0;
  bool proven = false;  // read again, or asked for again soon after it was removed
  uint64_t reads = 0;   // since it was written or spared, up to kMaxReads
  UseHints Pack() const;
  static UnplannedUse Of(const UseHints& hints);
};

/// Decides what makes room, among candidates that were drawn at random. Pure; not thread-safe.
///
/// With a plan, the range whose next use is farthest goes first, as L. Belady's optimum has it (A study of replacement
/// algorithms for a virtual-storage computer, IBM Systems Journal 5(2), 1966). A range that would itself be the
/// farthest is not written at all.
///
/// Without a plan, the order is much as S3-FIFO has it (J. Yang et al., FIFO queues are all you need for cache
/// eviction, SOSP 2023). A range that was written and not read again goes first, then the oldest of the others. A range
/// that was read since is spared once, and then nothing is written. So a scan, or a loop longer than the cache, leaves
/// what is there, and FIFO would push out everything (see M. Qureshi et al., Adaptive insertion policies, ISCA 2007).
///
/// Jobs that are alive share: none is made to give up ranges to another while it has less than an equal part. A pinned
/// range makes room for nothing, and takes it from all others.
class EvictionPolicy {
 public:
  struct Candidate {
    UseHints hints;
    uint64_t bytes = 0;
    bool known = false;  // it belongs to an object that this process reads
  };
  struct Choice {
    enum class What { kEvict, kSpare, kReject };
    What what = What::kReject;
    size_t index = 0;  // of the candidate
  };

  /// Sets the jobs that are alive.
  void SetJobs(std::vector<JobClock> jobs) { jobs_ = std::move(jobs); }
  /// Takes note of each candidate when it is drawn: this tells the shares of the jobs.
  void Saw(const UseHints& hints, uint64_t bytes);

  /// Chooses for a range with these hints. kSpare: the candidate gets Spared() and stays, and the range is not
  /// written. kReject: it is not written.
  Choice Choose(std::span<const Candidate> candidates, const UseHints& incoming) const;

  /// Chooses when something must go, whatever for.
  Choice ChooseForced(std::span<const Candidate> candidates) const;

  /// Returns how far its next use is, in positions, for a job that is alive. Greater goes first.
  uint64_t Distance(const UseHints& hints, const JobClock& job) const;
  /// Returns true if candidate `a` goes before `b` when both are of the same job, or of none.
  bool Before(const UseHints& a, const UseHints& b) const;
  const JobClock* Find(uint32_t job) const;

  static UseHints Spared(const UseHints& hints, uint64_t now_ms);

 private:
  struct Share {
    uint32_t job = 0;
    double bytes = 0;
  };
  double ShareOf(uint32_t job) const;
  Choice ChooseUnplanned(std::span<const Candidate> candidates, bool may_reject) const;
  Choice ChoosePlanned(std::span<const Candidate> candidates, const JobClock& job, const UseHints* incoming) const;

  std::vector<JobClock> jobs_;
  std::vector<Share> shares_;  // of what was seen lately; job 0: of none that is alive
  int seen_ = 0;
  double unproven_ = 0;  // of the bytes of kUnplanned
};

}  // namespace millrace
