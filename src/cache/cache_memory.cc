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

}  // namespace

absl::StatusOr<std::shared_ptr<CacheMemory>> CacheMemory::Make() {
  UniqueFd fd(memfd_create("millrace-cache", MFD_CLOEXEC));
  if (!fd) return ErrnoStatus(errno, "a cache in memory", "making it");
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
