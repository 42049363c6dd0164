#include "cache/disk_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/buffer.h"
#include "base/errno_status.h"
#include "base/log.h"

namespace millrace {

namespace {

constexpr uint64_t kQueuedBytes = 64 << 20;
constexpr int kReaders = 8;
constexpr size_t kMostFiles = 4096;
constexpr int64_t kLookAgainMs = 10'000;

// A quarter of what the process may have open.
size_t MostFiles() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 64;
  return std::clamp<size_t>(limit.rlim_cur / 4, 16, kMostFiles);
}

int64_t NanosecondsOf(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Of the file system, which stamps the files: no other clock is compared with it.
absl::StatusOr<int64_t> FileSystemNow(const std::string& folder) {
  const std::string path = folder + "/lock";
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat info {};
  if (!fd || futimens(fd.get(), nullptr) != 0 || fstat(fd.get(), &info) != 0)
    return ErrnoStatus(errno, path, "telling the time by");
  return NanosecondsOf(info.st_mtim);
}

int64_t SteadyMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Removable {
  int64_t used_ns = 0;
  std::string path;
};

// The files of the cache that were opened before `before_ns`, the longest ago first.
std::vector<Removable> FindRemovable(const std::string& folder, int64_t before_ns) {
  std::vector<Removable> found;
  std::error_code error;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator sub(folder, error); !error && sub != end; sub.increment(error)) {
    std::error_code of_files;
    const std::string name = sub->path().filename();
    for (std::filesystem::directory_iterator file(sub->path(), of_files); !of_files && file != end;
         file.increment(of_files)) {
      struct stat info {};
      const std::string path = file->path();
      if (!cache_format::IsFileName(name, file->path().filename().native())) continue;
      if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
      if (NanosecondsOf(info.st_mtim) < before_ns) found.push_back({NanosecondsOf(info.st_mtim), path});
    }
  }
  std::sort(found.begin(), found.end(), [](const Removable& a, const Removable& b) { return a.used_ns < b.used_ns; });
  return found;
}

// The bytes that it took of the disk; nullopt if somebody uses it.
std::optional<uint64_t> RemoveUnused(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct stat info {};
  if (!fd || flock(fd.get(), LOCK_EX | LOCK_NB) != 0 || fstat(fd.get(), &info) != 0) return std::nullopt;
  if (info.st_nlink == 0 || unlink(path.c_str()) != 0) return std::nullopt;
  return static_cast<uint64_t>(info.st_blocks) * kStatBlockBytes;
}

}  // namespace

DiskCache::DiskCache(DiskCacheOptions options, std::string folder, DiskUsage usage)
    : options_(std::move(options)),
      folder_(std::move(folder)),
      opened_ns_(FileSystemNow(folder_).value_or(0)),
      most_files_(MostFiles()),
      usage_(std::move(usage)),
      queued_(kQueuedBytes),
      readers_(std::make_unique<ThreadPool>(kReaders, "cache-read")),
      writer_(std::make_unique<ThreadPool>(1, "cache-write")) {}

DiskCache::~DiskCache() {
  readers_.reset();  // their tasks may give the writer some
  writer_.reset();
}

absl::StatusOr<std::unique_ptr<DiskCache>> DiskCache::Open(DiskCacheOptions options) {
  if (options.folder.empty()) return absl::InvalidArgumentError("the cache needs a folder");
  std::string folder = options.folder + "/millrace-cache-1";
  RETURN_IF_ERROR(MakeFolder(folder, folder, Durability::kUnsynced));
  ASSIGN_OR_RETURN(DiskUsage usage, DiskUsage::Open(folder));
  return std::unique_ptr<DiskCache>(new DiskCache(std::move(options), std::move(folder), std::move(usage)));
}

std::unique_ptr<DiskCache> DiskCache::OpenOrWarn(DiskCacheOptions options) {
  const std::string folder = options.folder;
  absl::StatusOr<std::unique_ptr<DiskCache>> cache = Open(std::move(options));
  if (cache.ok()) return *std::move(cache);
  Log(LogLevel::kWarning, "cache",
      fmt::format("the cache {} cannot be used, so that everything is read from the store: {}", folder,
                  ToStd(cache.status().message())));
  return nullptr;
}

void DiskCache::OnDiskError(const absl::Status& status, bool reading) {
  writes_ = false;
  if (reading) reads_ = false;
  if (warned_.exchange(true)) return;
  Log(LogLevel::kWarning, "cache",
      fmt::format("the cache {} {} until this process ends, and what it lacks comes from the store: {}", folder_,
                  reading ? "is not used" : "takes nothing new", ToStd(status.message())));
}

// ---- Files

std::shared_ptr<CacheFile> DiskCache::Find(const CacheIdentity& identity, const std::string& name) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_name_.find(name);
    if (found != by_name_.end()) {
      files_.splice(files_.begin(), files_, found->second);
      return found->second->file;
    }
  }
  absl::StatusOr<std::unique_ptr<CacheFile>> file = CacheFile::Open(folder_ + "/" + name, identity);
  if (!file.ok()) {
    const absl::Status& status = file.status();
    if (!absl::IsNotFound(status) && !absl::IsDataLoss(status)) OnDiskError(status, /*reading=*/true);
    return nullptr;
  }
  std::shared_ptr<CacheFile> shared = *std::move(file);
  Remember(name, shared);
  return shared;
}

// Two that open it at once have two of it, of which the first stays.
void DiskCache::Remember(const std::string& name, std::shared_ptr<CacheFile> file) {
  const std::lock_guard lock(mutex_);
  if (by_name_.contains(name)) return;
  files_.push_front({name, std::move(file)});
  by_name_.emplace(name, files_.begin());
  while (files_.size() > most_files_) {
    by_name_.erase(files_.back().name);
    files_.pop_back();
  }
}

std::shared_ptr<CacheFile> DiskCache::FindOrMake(const CacheIdentity& identity, const std::string& name,
                                                 uint64_t object_bytes) {
  if (std::shared_ptr<CacheFile> file = Find(identity, name)) return file;
  if (!writes_ || !TakeRoom(CacheFile::kEmptyDiskBytes)) return nullptr;
  absl::StatusOr<std::unique_ptr<CacheFile>> made = CacheFile::OpenOrMake(folder_ + "/" + name, identity, object_bytes);
  // Names that are too long are not kept, nor what comes while another process has the file.
  if (absl::IsInvalidArgument(made.status()) || absl::IsNotFound(made.status())) return nullptr;
  if (!made.ok()) {
    OnDiskError(made.status(), /*reading=*/false);
    return nullptr;
  }
  std::shared_ptr<CacheFile> shared = *std::move(made);
  Remember(name, shared);
  return shared;
}

// ---- Reading

std::optional<uint64_t> DiskCache::Read(const CacheIdentity& identity, ByteRange range,
                                        std::span<const SpanChecksum> checksums, MutableByteSpan into) {
  if (!reads_.load(std::memory_order_relaxed)) return std::nullopt;
  const std::shared_ptr<CacheFile> file = Find(identity, cache_format::FileName(identity));
  if (file == nullptr) return std::nullopt;
  const absl::Status status = file->Read(range, checksums, into);
  if (status.ok()) return file->object_bytes();
  if (absl::IsDataLoss(status)) {
    Log(LogLevel::kDebug, "cache", ToStd(status.message()));
  } else if (!absl::IsNotFound(status)) {
    OnDiskError(status, /*reading=*/true);
  }
  return std::nullopt;
}

// ---- Writing

void DiskCache::Keep(const CacheIdentity& identity, uint64_t object_bytes, uint64_t offset, ByteSpan bytes) {
  if (!keeps() || bytes.empty()) return;
  Reservation room = queued_.TryReserve(bytes.size());
  if (!room) return;
  Buffer copy(bytes.size());
  std::memcpy(copy.span().data(), bytes.data(), bytes.size());
  writer_->Submit([this, identity, object_bytes, offset, copy = std::move(copy), room = std::move(room)]() {
    Write(identity, object_bytes, offset, copy.span());
  });
}

void DiskCache::Write(const CacheIdentity& identity, uint64_t object_bytes, uint64_t offset, ByteSpan bytes) {
  const std::string name = cache_format::FileName(identity);
  const std::shared_ptr<CacheFile> file = FindOrMake(identity, name, object_bytes);
  if (file == nullptr || file->object_bytes() != object_bytes) return;
  for (const ByteRange& part : file->Missing({offset, bytes.size()})) {
    const uint64_t taken = CacheFile::DiskBytes(part.length);
    if (!writes_ || !TakeRoom(taken)) return;
    const absl::Status status = file->Write(part.offset, bytes.subspan(part.offset - offset, part.length));
    if (!status.ok()) return OnDiskError(status, /*reading=*/false);
  }
}

void DiskCache::Flush() {
  std::mutex mutex;
  std::condition_variable written;
  bool done = false;
  writer_->Submit([&] {
    const std::lock_guard lock(mutex);
    done = true;
    written.notify_all();
  });
  std::unique_lock lock(mutex);
  written.wait(lock, [&] { return done; });
}

// ---- Room

bool DiskCache::HasFreeSpace(uint64_t bytes) const {
  struct statvfs info {};
  if (statvfs(folder_.c_str(), &info) != 0) return true;  // then writing will say what is wrong
  const double kept = options_.free_share * static_cast<double>(info.f_blocks) * static_cast<double>(info.f_frsize);
  return static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize) >= kept + static_cast<double>(bytes);
}

bool DiskCache::TakeRoom(uint64_t bytes) {
  const uint64_t limit = options_.size_bytes == 0 ? UINT64_MAX : options_.size_bytes;
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (HasFreeSpace(bytes)) {
      const absl::StatusOr<bool> taken = usage_.Take(bytes, limit);
      if (!taken.ok()) {
        OnDiskError(taken.status(), /*reading=*/false);
        return false;
      }
      if (*taken) return true;
    }
    if (attempt > 0 || !MakeRoom(bytes)) return false;
  }
  return false;
}

// Removes what nobody uses, some more than is needed now, so that the folders are not searched for each range.
bool DiskCache::MakeRoom(uint64_t bytes) {
  constexpr uint64_t kMore = 64 << 20;
  const std::lock_guard lock(room_mutex_);
  if (looked_ms_ != 0 && SteadyMs() - looked_ms_ < kLookAgainMs) return false;
  const uint64_t wanted = bytes + std::min(kMore, options_.size_bytes / 16);
  uint64_t removed = 0;
  for (const Removable& file : FindRemovable(folder_, opened_ns_)) {
    if (removed >= wanted) break;
    const std::optional<uint64_t> freed = RemoveUnused(file.path);
    if (!freed) continue;
    removed += *freed;
    usage_.GiveBack(*freed).IgnoreError();  // the count stays too large, and is made again
  }
  if (removed < bytes) looked_ms_ = SteadyMs();
  return removed > 0;
}

}  // namespace millrace
