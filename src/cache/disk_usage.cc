#include "cache/disk_usage.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/atomic_file.h"
#include "base/bytes.h"
#include "base/counted.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "cache/cache_file.h"
#include "cache/cache_format.h"
#include "cache/room_maker.h"
#include "cache/shared_file.h"
#include "cache/span_reader.h"

namespace millrace {

namespace {

constexpr uint64_t kFilesOfStep = 1024;
constexpr uint64_t kRecordsRead = 2048;

// The file has the number here, and then how far a process is that counts: 0 if the number is that of a whole count.
constexpr off_t kNumberAt = 0;
constexpr off_t kProgressAt = 8;
// The file has the version of the files that were counted last here.
constexpr off_t kVersionAt = 16;
// Holds one more than the number of bits that the number of slabs has; 0: nobody has said.
constexpr off_t kSlabBitsAt = 24;

// The leftovers of killed writers are removed first. `tell`, called again and again, shows others that it makes
// progress.
uint64_t CountBytes(const std::string& folder, absl::FunctionRef<void(uint64_t files)> tell) {
  uint64_t files = 0;
  uint64_t bytes = 0;
  std::error_code ignored;  // what cannot be looked at cannot be counted
  for (std::filesystem::directory_iterator sub(folder, ignored), end; !ignored && sub != end; sub.increment(ignored)) {
    const std::string name = sub->path().filename();
    if (sub->is_symlink(ignored) || !sub->is_directory(ignored)) continue;  // what is not ours is not counted
    RemoveAbandoned(sub->path().native()).IgnoreError();
    std::error_code of_files;
    for (std::filesystem::directory_iterator file(sub->path(), of_files); !of_files && file != end;
         file.increment(of_files)) {
      struct stat info {};
      if (++files % kFilesOfStep == 0) tell(files);
      if (!cache_format::IsFileName(name, file->path().filename().native())) continue;
      if (lstat(file->path().c_str(), &info) != 0) continue;
      bytes += CountedBytes(file->path(), info);
      if (static_cast<uint64_t>(info.st_size) > cache_format::kSlabBytes) tell(files);  // its records were read
    }
  }
  return bytes;
}

// Returns 0 if it cannot be read: a new file.
uint64_t Load(int fd, off_t at) {
  uint64_t value = 0;
  return pread(fd, &value, sizeof value, at) == sizeof value ? value : 0;
}

uint64_t LoadProgress(int fd) {
  return Load(fd, kProgressAt);
}

absl::Status Store(int fd, uint64_t value, off_t at = kNumberAt) {
  if (pwrite(fd, &value, sizeof value, at) == sizeof value) return absl::OkStatus();
  return ErrnoStatus(errno, "the cache's count of bytes", "writing");
}

// Nobody else has them open, and this version never reads them.
void DropOtherVersions(const std::string& folder, absl::FunctionRef<void(uint64_t files)> tell) {
  uint64_t files = 0;
  uint64_t dropped = 0;
  ForEachCacheFile(folder, [&](const std::string& name, uint64_t /*slab_records*/) {
    if (++files % kFilesOfStep == 0) tell(files);
    const std::string path = folder + "/" + name;
    if (absl::IsDataLoss(CacheFile::Open(path).status()) && UnlinkUnused(path)) ++dropped;
  });
  if (dropped == 0) return;
  Log(LogLevel::kWarning, "cache",
      fmt::format("{}: removed {} of another version of Millrace, or damaged; their data come from the store again",
                  folder, Counted(dropped, "file")));
}

// A process that is killed meanwhile leaves a progress, so that the number is not taken for the count.
absl::Status CountAgain(const std::string& folder, int fd, std::optional<int> least_slab_bits) {
  RETURN_IF_ERROR(Store(fd, 1, kProgressAt));
  const auto tell = [&](uint64_t files) { Store(fd, files, kProgressAt).IgnoreError(); };
  if (Load(fd, kVersionAt) != cache_format::kVersion) DropOtherVersions(folder, tell);
  RETURN_IF_ERROR(Store(fd, CountBytes(folder, tell)));
  RETURN_IF_ERROR(Store(fd, cache_format::kVersion, kVersionAt));
  // The objects in fewer slabs are not found any more, and make room in time.
  const uint64_t least = least_slab_bits ? static_cast<uint64_t>(*least_slab_bits) + 1 : 0;
  if (Load(fd, kSlabBitsAt) < least) RETURN_IF_ERROR(Store(fd, least, kSlabBitsAt));
  return Store(fd, 0, kProgressAt);
}

// A slab keeps free records for the objects that come: they have no margin.
uint64_t MarginsOfRecords(int fd, uint64_t records, const std::string& path) {
  using namespace cache_format;
  const uint64_t begin = RecordsAt(kSlabBytes);
  uint64_t margins = 0;
  std::string bytes;
  for (uint64_t first = 0; first < records; first += kRecordsRead) {
    const off_t data = lseek(fd, static_cast<off_t>(begin + first * kRecordBytes), SEEK_DATA);
    if (data < 0 && errno == ENXIO) break;  // the rest is a hole
    if (data > 0) first = std::max(first, (static_cast<uint64_t>(data) - begin) / kRecordBytes);
    const uint64_t count = std::min(records - std::min(records, first), kRecordsRead);
    bytes.resize(count * kRecordBytes);
    if (!ReadAt(fd, begin + first * kRecordBytes, AsWritableBytes(bytes), path).ok()) break;
    for (uint64_t i = 0; i < count; ++i) {
      const ByteSpan record = AsBytes(bytes).subspan(i * kRecordBytes, kRecordBytes);
      const std::optional<CachedSpan> span = DecodeRecord(record, kSlabBytes, /*in_slab=*/true);
      if (span) margins += SlabMarginBytes(span->range.length);
    }
  }
  return margins;
}

}  // namespace

uint64_t CountedBytes(const std::string& path, const struct stat& info) {
  const uint64_t counted = static_cast<uint64_t>(info.st_blocks) * kStatBlockBytes + kFileMarginBytes;
  const auto size = static_cast<uint64_t>(info.st_size);
  const uint64_t records_at = cache_format::RecordsAt(cache_format::kSlabBytes);
  if (size <= records_at) return counted;
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  std::string head(cache_format::kHeadBytes, '\0');
  if (!fd || !ReadAt(fd.get(), 0, AsWritableBytes(head), path).ok()) return counted;
  const absl::StatusOr<CacheHead> found = cache_format::DecodeHead(AsBytes(head));
  if (!found.ok() || !cache_format::IsSlab(found->identity)) return counted;  // a very large object
  return counted + MarginsOfRecords(fd.get(), (size - records_at) / cache_format::kRecordBytes, path);
}

absl::StatusOr<DiskUsage> DiskUsage::Open(const std::string& folder, std::chrono::milliseconds patience,
                                          std::optional<int> least_slab_bits) {
  const std::string lock_path = folder + "/lock";
  const std::string number_path = folder + "/usage";
  ASSIGN_OR_RETURN(UniqueFd lock, OpenShared(lock_path));
  ASSIGN_OR_RETURN(UniqueFd number, OpenShared(number_path));
  absl::Status counted;
  const auto count_or_share = [&] {
    if (flock(lock.get(), LOCK_EX | LOCK_NB) == 0) counted = CountAgain(folder, number.get(), least_slab_bits);
    if (!counted.ok()) return 0;
    if (flock(lock.get(), LOCK_SH | LOCK_NB) != 0) return -1;
    if (LoadProgress(number.get()) == 0) return 0;
    flock(lock.get(), LOCK_UN);  // the one that counted was killed
    errno = EWOULDBLOCK;
    return -1;
  };
  // Waits for one that counts, as long as its progress changes.
  uint64_t seen = LoadProgress(number.get());
  RETURN_IF_ERROR(LockInTime(lock_path, patience, count_or_share, [&] {
    const uint64_t before = std::exchange(seen, LoadProgress(number.get()));
    return before != seen;
  }));
  RETURN_IF_ERROR(counted);
  return DiskUsage(folder, std::move(lock), std::move(number), patience);
}

absl::StatusOr<DiskUsage> DiskUsage::MakeAgain() const {
  RETURN_IF_ERROR(MakeCacheFolder(folder_));
  return Open(folder_, patience_);
}

// The count of a folder that is gone says nothing of the new one.
absl::Status DiskUsage::LockNumber() {
  for (;;) {
    RETURN_IF_ERROR(LockInTime(folder_ + "/usage", patience_, [&] { return flock(number_.get(), LOCK_EX | LOCK_NB); }));
    struct stat info {};
    if (fstat(number_.get(), &info) != 0 || info.st_nlink > 0) return absl::OkStatus();
    absl::StatusOr<DiskUsage> again = MakeAgain();
    if (!again.ok()) {
      flock(number_.get(), LOCK_UN);  // other processes wait for it
      return again.status();
    }
    lock_ = std::move(again->lock_);
    number_ = std::move(again->number_);
    // The next process finds the number of slabs that this process has. (The file is locked by the next round.)
    if (slabs_ > 0 && Load(number_.get(), kSlabBitsAt) == 0) RETURN_IF_ERROR(Store(number_.get(), slabs_, kSlabBitsAt));
  }
}

// Adds and removes, if the sum is within the limit; returns the sum.
absl::StatusOr<uint64_t> DiskUsage::Change(uint64_t add, uint64_t remove, uint64_t limit, bool* done) {
  const std::lock_guard held(mutex_);  // flock is the process's
  const auto changed = [&](uint64_t bytes) {
    *done = add == 0 || (add <= limit && bytes <= limit - add);
    return *done ? bytes + add - std::min(bytes, remove) : bytes;
  };
  if (!number_) return bytes_ = changed(bytes_);
  RETURN_IF_ERROR(failed_);
  if (absl::Status locked = LockNumber(); !locked.ok()) {
    if (absl::IsDeadlineExceeded(locked)) failed_ = locked;
    return locked;
  }
  uint64_t bytes = 0;
  absl::Status status;
  if (pread(number_.get(), &bytes, sizeof bytes, 0) < 0)
    status = ErrnoStatus(errno, "the cache's count of bytes", "reading");
  bytes = changed(bytes);
  if (status.ok() && *done && add + remove > 0) status = Store(number_.get(), bytes);
  flock(number_.get(), LOCK_UN);
  RETURN_IF_ERROR(status);
  return bytes;
}

absl::StatusOr<bool> DiskUsage::Take(uint64_t bytes, uint64_t limit) {
  bool taken = false;
  RETURN_IF_ERROR(Change(bytes, 0, limit, &taken).status());
  return taken;
}

absl::Status DiskUsage::GiveBack(uint64_t bytes) {
  bool ignored = false;
  return Change(0, bytes, UINT64_MAX, &ignored).status();
}

// A folder that is made again may get another number from a newcomer: then some of what is there is not found, and
// makes room in time.
absl::StatusOr<int> DiskUsage::AgreeOnSlabs(int wanted_bits, int most_bits) {
  const std::lock_guard held(mutex_);
  RETURN_IF_ERROR(LockNumber());
  uint64_t known = Load(number_.get(), kSlabBitsAt);
  absl::Status stored;
  if (known == 0 || known > static_cast<uint64_t>(most_bits) + 1) {
    known = static_cast<uint64_t>(wanted_bits) + 1;
    stored = Store(number_.get(), known, kSlabBitsAt);
  }
  flock(number_.get(), LOCK_UN);
  RETURN_IF_ERROR(stored);
  slabs_ = known;
  return static_cast<int>(known - 1);
}

absl::StatusOr<uint64_t> DiskUsage::bytes() {
  bool ignored = false;
  return Change(0, 0, UINT64_MAX, &ignored);
}

}  // namespace millrace
