#include "cache/cache_tools.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include "base/errno_status.h"
#include "cache/cache_file.h"
#include "cache/disk_cache.h"
#include "cache/disk_usage.h"
#include "cache/job_table.h"
#include "cache/room_maker.h"
#include "cache/shared_file.h"

namespace millrace {

namespace {

absl::StatusOr<std::string> ExistingCache(const std::string& folder) {
  std::string inside = DiskCache::FolderIn(folder);
  std::error_code error;
  if (std::filesystem::is_directory(inside, error)) {
    RETURN_IF_ERROR(MakeCacheFolder(inside));  // checks whose it is
    return inside;
  }
  return absl::NotFoundError(fmt::format("{} has no cache: there is no folder {}", folder, inside));
}

absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& inside, const std::stop_token& stop) {
  std::vector<std::string> names;
  ForEachCacheFile(inside, [&](const std::string& name, uint64_t /*slab_records*/) { names.push_back(name); });
  if (stop.stop_requested()) return absl::CancelledError("interrupted");
  std::sort(names.begin(), names.end());
  return names;
}

uint64_t DiskBytesOf(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_blocks) * kStatBlockBytes : 0;
}

// Null if it is not sound, or gone; then `unsound` tells which.
std::unique_ptr<CacheFile> OpenIfSound(const std::string& path, bool* unsound) {
  absl::StatusOr<std::unique_ptr<CacheFile>> file = CacheFile::Open(path);
  *unsound = absl::IsDataLoss(file.status());
  return file.ok() ? *std::move(file) : nullptr;
}

// Each is counted with its bytes and its record.
absl::Status ForEachSmallObject(const CacheFile& slab, const std::vector<CachedSpan>& spans,
                                const CachedObjectVisitor& each) {
  for (const CachedSpan& span : spans) {
    CachedObject object;
    std::optional<CacheIdentity> owner = slab.OwnerOf(span, &object.object_bytes);
    if (!owner) continue;  // removed meanwhile
    object.identity = *std::move(owner);
    object.cached_bytes = object.object_bytes;
    object.ranges = 1;
    object.disk_bytes = span.range.length + cache_format::kRecordBytes;
    RETURN_IF_ERROR(each(object));
  }
  return absl::OkStatus();
}

uint64_t ObjectsIn(const CacheFile& file, const std::vector<CachedSpan>& spans) {
  return file.is_slab() ? spans.size() : 1;
}

}  // namespace

std::string CachedObject::uri() const {
  const size_t space = identity.store.find(' ');
  return (space == std::string::npos ? identity.store : identity.store.substr(space + 1)) + identity.key;
}

absl::Status ForEachCachedObject(const std::string& folder, const std::stop_token& stop,
                                 const CachedObjectVisitor& each) {
  ASSIGN_OR_RETURN(const std::string inside, ExistingCache(folder));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(inside, stop));
  for (const std::string& name : names) {
    if (stop.stop_requested()) return absl::CancelledError("interrupted");
    const std::string path = inside + "/" + name;
    bool unsound = false;
    const std::unique_ptr<CacheFile> file = OpenIfSound(path, &unsound);
    if (file == nullptr) continue;
    ASSIGN_OR_RETURN(const std::vector<CachedSpan> spans, file->All());
    if (file->is_slab()) {
      RETURN_IF_ERROR(ForEachSmallObject(*file, spans, each));
      continue;
    }
    CachedObject object{.identity = file->identity(), .object_bytes = file->object_bytes()};
    object.ranges = spans.size();
    object.disk_bytes = DiskBytesOf(path);
    for (const CachedSpan& span : spans) object.cached_bytes += span.range.length;
    RETURN_IF_ERROR(each(object));
  }
  return absl::OkStatus();
}

absl::StatusOr<CacheSummary> SummarizeCache(const std::string& folder, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const std::string inside, ExistingCache(folder));
  CacheSummary summary;
  const UniqueFd jobs(open(JobTablePath(inside).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (jobs) {
    for (const JobClock& job : LiveJobs(jobs.get())) summary.jobs.push_back({job.job, true, job, 0, 0});
  }
  summary.jobs.push_back({});
  ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(inside, stop));
  for (const std::string& name : names) {
    if (stop.stop_requested()) return absl::CancelledError("interrupted");
    const std::string path = inside + "/" + name;
    summary.disk_bytes += DiskBytesOf(path);
    bool unsound = false;
    const std::unique_ptr<CacheFile> file = OpenIfSound(path, &unsound);
    summary.unsound_files += unsound ? 1 : 0;
    if (file == nullptr) continue;
    ASSIGN_OR_RETURN(const std::vector<CachedSpan> spans, file->All());
    summary.objects += ObjectsIn(*file, spans);
    for (const CachedSpan& span : spans) {
      ++summary.ranges;
      summary.cached_bytes += span.range.length;
      if (span.hints.job == UseHints::kPinned) {
        summary.pinned_bytes += span.range.length;
        continue;
      }
      auto job = std::find_if(summary.jobs.begin(), summary.jobs.end() - 1,
                              [&](const CacheSummary::Job& one) { return one.job == span.hints.job; });
      ++job->ranges;
      job->bytes += span.range.length;
    }
  }
  struct statvfs info {};
  if (statvfs(inside.c_str(), &info) != 0) return ErrnoStatus(errno, inside, "looking it up");
  summary.file_system_bytes = uint64_t{info.f_blocks} * info.f_frsize;
  summary.free_bytes = uint64_t{info.f_bavail} * info.f_frsize;
  return summary;
}

absl::StatusOr<CacheCheck> VerifyCache(const std::string& folder, const LongTask& task) {
  ASSIGN_OR_RETURN(const std::string inside, ExistingCache(folder));
  ASSIGN_OR_RETURN(DiskUsage usage, DiskUsage::Open(inside));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(inside, task.stop));
  uint64_t total = 0;
  for (const std::string& name : names) total += DiskBytesOf(inside + "/" + name);
  CacheCheck check;
  std::string bytes;
  uint64_t done = 0;
  for (const std::string& name : names) {
    const std::string path = inside + "/" + name;
    bool unsound = false;
    const std::unique_ptr<CacheFile> file = OpenIfSound(path, &unsound);
    if (unsound) {
      ++check.unsound_files;
      if (const std::optional<uint64_t> freed = UnlinkUnused(path)) usage.GiveBack(*freed).IgnoreError();
    }
    if (file != nullptr) {
      usage.GiveBack(file->Reclaim()).IgnoreError();
      ASSIGN_OR_RETURN(const std::vector<CachedSpan> spans, file->All());
      check.objects += ObjectsIn(*file, spans);
      for (const CachedSpan& span : spans) {
        if (task.stop.stop_requested()) return absl::CancelledError("interrupted");
        bytes.resize(span.range.length);
        uint64_t freed = 0;
        const absl::Status read = file->is_slab() ? file->CheckSmall(span, AsWritableBytes(bytes), &freed)
                                                  : file->Read(span.range, {}, AsWritableBytes(bytes), &freed);
        if (freed > 0) usage.GiveBack(freed).IgnoreError();
        if (absl::IsNotFound(read)) continue;  // removed meanwhile
        ++check.ranges;
        check.bytes += span.range.length;
        done += span.range.length;
        if (absl::IsDataLoss(read)) {
          ++check.damaged_ranges;
        } else if (!read.ok()) {
          return read;
        }
        if (task.progress) task.progress(done, std::max(total, done));
      }
    }
  }
  return check;
}

absl::StatusOr<CacheClearing> ClearCache(const std::string& folder, const std::string& prefix, const LongTask& task) {
  ASSIGN_OR_RETURN(const std::string inside, ExistingCache(folder));
  ASSIGN_OR_RETURN(DiskUsage usage, DiskUsage::Open(inside));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(inside, task.stop));
  CacheClearing cleared;
  for (size_t i = 0; i < names.size(); ++i) {
    if (task.stop.stop_requested()) return absl::CancelledError("interrupted");
    if (task.progress) task.progress(i, names.size());
    const std::string path = inside + "/" + names[i];
    bool unsound = false;
    uint64_t freed = 0;
    const std::unique_ptr<CacheFile> file = OpenIfSound(path, &unsound);
    uint64_t objects = file == nullptr ? 1 : 0;
    if (unsound) freed = UnlinkUnused(path).value_or(0);
    if (file != nullptr) {
      ASSIGN_OR_RETURN(const std::vector<CachedSpan> spans, file->All());
      uint64_t of_prefix = 0;
      for (const CachedSpan& span : spans) {
        const std::optional<CacheIdentity> owner = file->OwnerOf(span);  // null: its texts are damaged
        if (owner && !CachedObject{.identity = *owner}.uri().starts_with(prefix)) continue;
        ++of_prefix;
        ASSIGN_OR_RETURN(const uint64_t removed, file->Remove(span.range, span.crc32c));
        freed += removed;
      }
      if (file->is_slab()) {
        objects = of_prefix;
      } else if (CachedObject{.identity = file->identity()}.uri().starts_with(prefix)) {
        objects = 1;
      }
      if (objects > 0) {
        freed += file->Reclaim();
        freed += file->UnlinkIfEmpty();
      }
    }
    if (freed == 0 && (file == nullptr || !file->is_slab())) continue;
    cleared.objects += objects;
    cleared.disk_bytes += freed;
    usage.GiveBack(freed).IgnoreError();
  }
  return cleared;
}

}  // namespace millrace
