#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "cache/eviction.h"

namespace millrace {

/// Holds the entry of one reader of a cache in the file `jobs` of its folder, where all processes see it. It counts as
/// long as it lives: the system ends it with the process. If the folder is removed meanwhile, it is made again, at the
/// next change of the clock. Thread-safe.
class JobEntry {
 public:
  static constexpr uint64_t kMost = 128;  // of a folder
  static constexpr uint64_t kBytes = 32;  // of each

  /// Makes an entry in the table at that path. ResourceExhausted if it is full; else what the system says.
  static absl::StatusOr<std::unique_ptr<JobEntry>> Make(const std::string& path, uint32_t job, uint64_t period,
                                                        uint64_t clock = 0);
  ~JobEntry();
  JobEntry(const JobEntry&) = delete;
  JobEntry& operator=(const JobEntry&) = delete;

  /// The reader is at `clock` now. Cheap if that is near to what it was.
  void SetClock(uint64_t clock);

 private:
  JobEntry(std::string path, UniqueFd fd, uint64_t number, uint32_t job, uint64_t period, uint64_t clock)
      : path_(std::move(path)), job_(job), period_(period), told_(clock), fd_(std::move(fd)), number_(number) {}
  void Store(uint32_t job, uint64_t clock) const;  // mutex_ held, or nobody else knows of it

  const std::string path_;
  const uint32_t job_;
  const uint64_t period_;
  std::atomic<uint64_t> told_;
  std::mutex mutex_;
  UniqueFd fd_;      // has the lock of the entry
  uint64_t number_;  // of the entry
};

/// Returns the jobs of all entries that are alive; of several entries of a job, the earliest clock. `fd` is of the
/// file, opened by the caller.
std::vector<JobClock> LiveJobs(int fd);

/// Returns the path of the file.
std::string JobTablePath(const std::string& folder);

}  // namespace millrace
