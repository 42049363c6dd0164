#include "cache/disk_cache.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/log.h"
#include "cache/shared_file.h"

namespace millrace {

namespace {

constexpr size_t kMaxFiles = 4096;

// A quarter of what the process may have open.
size_t MostFiles() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 64;
  return std::clamp<size_t>(limit.rlim_cur / 4, 16, kMaxFiles);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DiskCache>> DiskCache::Open(RangeCacheOptions options) {
  if (options.folder.empty()) return absl::InvalidArgumentError("the cache needs a folder");
  const std::string folder = FolderIn(options.folder);
  RETURN_IF_ERROR(MakeCacheFolder(folder));
  struct statvfs disk {};
  const uint64_t room = statvfs(folder.c_str(), &disk) == 0 ? uint64_t{disk.f_blocks} * disk.f_frsize : 0;
  const uint64_t capacity = options.size_bytes == 0 ? room : std::min(room, options.size_bytes);
  const size_t most_files = MostFiles();
  const int wanted_bits = std::min(SlabBitsFor(capacity), static_cast<int>(std::bit_width(most_files / 2)) - 1);
  ASSIGN_OR_RETURN(DiskUsage usage, DiskUsage::Open(folder, options.lock_patience, wanted_bits));
  ASSIGN_OR_RETURN(const int slab_bits, usage.AgreeOnSlabs(wanted_bits, kMostSlabBits));
  const std::string jobs_path = JobTablePath(folder);
  ASSIGN_OR_RETURN(UniqueFd jobs, OpenShared(jobs_path));
  ASSIGN_OR_RETURN(std::unique_ptr<FetchClaims> claims, FetchClaims::Open(folder));
  Parts parts{.name = folder,
              .size_bytes = options.size_bytes,
              .most_files = most_files,
              .queued_bytes = kMaxQueuedBytes,
              .usage = std::move(usage),
              .claims = std::move(claims),
              .jobs_path = jobs_path,
              .jobs = std::move(jobs),
              .tenant = options.tenant,
              .slab_bits = slab_bits};
  std::unique_ptr<DiskCache> cache(new DiskCache(std::move(parts), options));
  cache->ShrinkSoon();  // it may have been larger before
  return cache;
}

std::unique_ptr<DiskCache> DiskCache::OpenOrWarn(RangeCacheOptions options) {
  const std::string folder = options.folder;
  absl::StatusOr<std::unique_ptr<DiskCache>> cache = Open(std::move(options));
  if (cache.ok()) return *std::move(cache);
  Log(LogLevel::kWarning, "cache",
      fmt::format("the cache {} cannot be used, so that everything is read from the store: {}", folder,
                  ToStd(cache.status().message())));
  return nullptr;
}

// One of another version of Millrace, or a damaged one, is removed.
RangeCache::OpenedFile DiskCache::OpenFile(const std::string& name) {
  const std::string path = folder_ + "/" + name;
  OpenedFile opened = CacheFile::Open(path);
  if (!absl::IsDataLoss(opened.status())) return opened;
  if (const std::optional<uint64_t> freed = UnlinkUnused(path)) GiveBack(*freed);
  return opened;
}

RangeCache::OpenedFile DiskCache::OpenOrMakeFile(const Kept& kept, const CacheFile::First* first, bool* made) {
  return CacheFile::OpenOrMake(folder_ + "/" + kept.name, kept.identity, kept.object_bytes, first, made);
}

void DiskCache::ForEachName(CacheFileVisitor each) {
  ForEachCacheFile(folder_, each);
}

// Beside the share that the cache leaves free, which may be less than nothing.
std::optional<double> DiskCache::FreeBytes() const {
  struct statvfs info {};
  if (statvfs(folder_.c_str(), &info) != 0) return std::nullopt;
  const double kept = free_share_ * static_cast<double>(info.f_blocks) * static_cast<double>(info.f_frsize);
  return static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize) - kept;
}

uint64_t DiskCache::capacity_bytes() {
  const absl::StatusOr<uint64_t> used = disk_bytes();
  const std::optional<double> free = FreeBytes();
  if (!used.ok() || !free) return RangeCache::capacity_bytes();
  return std::min(limit(), static_cast<uint64_t>(std::max(0.0, static_cast<double>(*used) + *free)));
}

uint64_t DiskCache::Lacking(uint64_t bytes) {
  const std::optional<double> free = FreeBytes();
  if (!free) return 0;  // then writing will say what is wrong
  return static_cast<uint64_t>(std::max(0.0, static_cast<double>(bytes) - *free));
}

}  // namespace millrace
