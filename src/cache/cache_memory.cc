#include "cache/cache_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/errno_status.h"

namespace millrace {

namespace {

constexpr uint64_t kPage = 4096;
// What the system can address in a file.
constexpr uint64_t kMostStretched = uint64_t{1} << 62;
// MFD_NOEXEC_SEAL of Linux 6.3, which older headers lack. Systems may refuse files that do not say it.
constexpr unsigned kNeverExecuted = 0x0008U;

}  // namespace

absl::StatusOr<UniqueFd> MakeMemoryFile(const char* name) {
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | kNeverExecuted));
  if (!fd && errno == EINVAL) fd = UniqueFd(memfd_create(name, MFD_CLOEXEC));  // an older system
  if (!fd) return ErrnoStatus(errno, "a cache in memory", "making it");
  return fd;
}

absl::StatusOr<std::shared_ptr<CacheMemory>> CacheMemory::Make() {
  ASSIGN_OR_RETURN(UniqueFd fd, MakeMemoryFile("millrace-cache"));
  return std::shared_ptr<CacheMemory>(new CacheMemory(std::move(fd)));
}

CacheMemory::~CacheMemory() {
  (void)!ftruncate(fd_.get(), 0);
}

absl::StatusOr<uint64_t> CacheMemory::NewStretch(uint64_t bytes) {
  uint64_t begin = end_.load(std::memory_order_relaxed);
  for (;;) {
    if (bytes > kMostStretched - begin) return absl::InvalidArgumentError("the cache in memory has no place for more");
    const uint64_t end = begin + (bytes + kPage - 1) / kPage * kPage;
    if (end_.compare_exchange_weak(begin, end, std::memory_order_relaxed)) return begin;
  }
}

}  // namespace millrace
