#include "cache/job_table.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "cache/shared_file.h"

namespace millrace {

namespace {

// An entry has these fields: u32 job, u32 0, u64 clock, u64 period, u64 0.
constexpr uint64_t kClockAt = 8;
constexpr uint64_t kPeriodAt = 16;
// The clock is written when it has advanced by this part of an epoch.
constexpr uint64_t kTellsOfEpoch = 4096;

struct flock EntryLock(uint64_t number) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(number * JobEntry::kBytes);
  lock.l_len = JobEntry::kBytes;
  return lock;
}

// Returns the number of an entry that was free, and is locked now; nullopt if there is none.
std::optional<uint64_t> TakeEntry(int fd) {
  for (uint64_t number = 0; number < JobEntry::kMost; ++number) {
    struct flock lock = EntryLock(number);
    if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return number;
  }
  return std::nullopt;
}

}  // namespace

std::string JobTablePath(const std::string& folder) {
  return folder + "/jobs";
}

absl::StatusOr<std::unique_ptr<JobEntry>> JobEntry::Make(const std::string& path, uint32_t job, uint64_t period,
                                                         uint64_t clock) {
  ASSIGN_OR_RETURN(UniqueFd fd, OpenShared(path));
  const std::optional<uint64_t> number = TakeEntry(fd.get());
  if (!number) return absl::ResourceExhaustedError(fmt::format("{}: {} readers use the cache already", path, kMost));
  std::unique_ptr<JobEntry> entry(
      new JobEntry(path, std::move(fd), *number, job, std::max<uint64_t>(period, 1), clock));
  entry->Store(job, clock);
  return entry;
}

JobEntry::~JobEntry() {
  Store(0, 0);  // of what is not at its path any more, in vain
}

// If it cannot be written, others do not know it: these are hints only.
void JobEntry::Store(uint32_t job, uint64_t clock) const {
  std::string bytes;
  AppendLe(bytes, job);
  AppendLe(bytes, uint32_t{0});
  AppendLe(bytes, clock);
  AppendLe(bytes, period_);
  AppendLe(bytes, uint64_t{0});
  (void)!pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(number_ * kBytes));
}

void JobEntry::SetClock(uint64_t clock) {
  const uint64_t told = told_.load(std::memory_order_relaxed);
  if (clock >= told && clock - told < std::max<uint64_t>(1, period_ / kTellsOfEpoch)) return;
  told_.store(clock, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  if (IsGone(fd_.get(), path_)) {
    absl::StatusOr<UniqueFd> again = OpenShared(path_);
    const std::optional<uint64_t> number = again.ok() ? TakeEntry(again->get()) : std::nullopt;
    if (!number) return;  // nobody can be told
    fd_ = *std::move(again);
    number_ = *number;
  }
  Store(job_, clock);
}

std::vector<JobClock> LiveJobs(int fd) {
  std::string table(JobEntry::kMost * JobEntry::kBytes, '\0');
  const ssize_t read = pread(fd, table.data(), table.size(), 0);
  std::vector<JobClock> jobs;
  for (uint64_t number = 0; read > 0 && (number + 1) * JobEntry::kBytes <= static_cast<uint64_t>(read); ++number) {
    const char* const at = table.data() + number * JobEntry::kBytes;
    const JobClock entry{LoadLe<uint32_t>(at), LoadLe<uint64_t>(at + kClockAt),
                         std::max<uint64_t>(1, LoadLe<uint64_t>(at + kPeriodAt))};
    if (entry.job == 0) continue;
    struct flock lock = EntryLock(number);
    if (fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) continue;  // its process has died
    const auto same =
        std::find_if(jobs.begin(), jobs.end(), [&](const JobClock& other) { return other.job == entry.job; });
    if (same == jobs.end()) {
      jobs.push_back(entry);
    } else {
      same->clock = std::min(same->clock, entry.clock);
    }
  }
  return jobs;
}

}  // namespace millrace
