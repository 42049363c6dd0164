#include "cache/memory_cache.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/errno_status.h"
#include "base/size.h"
#include "cache/span_reader.h"

namespace millrace {

namespace {

// Room is counted by these.
constexpr uint64_t kPageBytes = 4096;
// The system can address so much in a file.
constexpr uint64_t kMaxStretched = uint64_t{1} << 62;
// A slab has a stretch of so many times its bytes.
constexpr uint64_t kStretchOfSlab = 4;
// MFD_NOEXEC_SEAL of Linux 6.3, which older headers lack. Systems may refuse files that do not say it.
constexpr unsigned kNeverExecuted = 0x0008U;

// Makes a file in memory, which is never executed. `name` shows in /proc only.
absl::StatusOr<UniqueFd> MakeMemoryFile(const char* name) {
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | kNeverExecuted));
  if (!fd && errno == EINVAL) fd = UniqueFd(memfd_create(name, MFD_CLOEXEC));  // an older system
  if (!fd) return ErrnoStatus(errno, "a cache in memory", "making it");
  return fd;
}

}  // namespace

uint64_t MemoryCache::MemoryFor(uint64_t size_bytes) {
  const uint64_t queued = std::min(kMaxQueuedBytes, size_bytes);
  return size_bytes > UINT64_MAX - queued ? UINT64_MAX : size_bytes + queued;
}

absl::StatusOr<std::unique_ptr<MemoryCache>> MemoryCache::Open(MemoryBudget& budget, uint64_t size_bytes,
                                                               std::string tenant) {
  if (size_bytes == 0) return absl::InvalidArgumentError("a cache in memory needs a size");
  if (const int64_t page = sysconf(_SC_PAGESIZE); page > static_cast<int64_t>(kPageBytes)) {
    return absl::InvalidArgumentError(fmt::format(
        "a cache in memory needs a machine whose pages have {} bytes, and here they have {}; name a folder, "
        "such as one of a tmpfs",
        kPageBytes, page));
  }
  const uint64_t bytes = MemoryFor(size_bytes);
  Reservation reserved = budget.TryReserve(bytes);
  if (!reserved) {
    return absl::ResourceExhaustedError(
        fmt::format("a cache of {} in memory ({} with what waits) does not fit into the process's budget of {}, of "
                    "which {} are taken; choose a smaller one, or raise the budget",
                    FormatSize(size_bytes), FormatSize(bytes), FormatSize(budget.limit()), FormatSize(budget.used())));
  }
  ASSIGN_OR_RETURN(UniqueFd memory, MakeMemoryFile("millrace-cache"));
  ASSIGN_OR_RETURN(UniqueFd jobs, MakeMemoryFile("millrace-cache-jobs"));
  Parts parts{.name = "in memory",
              .size_bytes = size_bytes,
              .queued_bytes = bytes - size_bytes,
              .usage = DiskUsage::OfMemory(),
              .claims = FetchClaims::OfProcess(),
              .jobs_path = fmt::format("/proc/self/fd/{}", jobs.get()),
              .jobs = std::move(jobs),
              .budget = &budget,
              .reserved = std::move(reserved),
              .tenant = std::move(tenant),
              .slab_bits = SlabBitsFor(size_bytes)};
  return std::unique_ptr<MemoryCache>(new MemoryCache(std::move(parts), std::move(memory)));
}

MemoryCache::~MemoryCache() {
  Stop();
  (void)!ftruncate(memory_.get(), 0);
}

// A slab's stretch has room for the places that are free between others, and no more: the limit of the file size
// (ulimit -f) counts what is stretched.
uint64_t MemoryCache::StretchFor(const Kept& kept) {
  if (!cache_format::IsSlab(kept.identity)) return kept.object_bytes;
  const uint64_t of_slab = capacity_bytes() >> SlabBitsFor(capacity_bytes());
  const uint64_t stretch = std::min(cache_format::kSlabBytes / kStretchOfSlab, of_slab) * kStretchOfSlab;
  return std::max(stretch, cache_format::kMaxSlabSpanBytes);
}

// All files are open, so that this one is new. On the writer's thread.
RangeCache::OpenedFile MemoryCache::OpenOrMakeFile(const Kept& kept, const CacheFile::First* first, bool* made) {
  *made = false;
  const uint64_t stretch = StretchFor(kept);
  const uint64_t most = std::min(kMaxStretched, FileSizeLimit());
  if (most < end_ || stretch > most - end_)
    return absl::InvalidArgumentError("the cache in memory has no place for more");
  std::unique_ptr<CacheFile> file = CacheFile::InMemory(memory_.get(), end_, kept.identity, stretch);
  if (first != nullptr) {
    const auto taken = [](uint64_t) { return absl::OkStatus(); };
    const auto given_back = [](uint64_t) {};
    RETURN_IF_ERROR(file->Write(first->offset, first->bytes, first->hints, {taken, given_back}));
  }
  end_ += (stretch + kPageBytes - 1) / kPageBytes * kPageBytes;
  *made = true;
  return file;
}

}  // namespace millrace
