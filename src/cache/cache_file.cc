#include "cache/cache_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/atomic_file.h"
#include "base/crypto.h"
#include "base/errno_status.h"

namespace millrace {

using namespace cache_format;

namespace {

constexpr uint64_t kDiskBlock = 4096;
constexpr size_t kRecordsAtOnce = 2048;
constexpr int kOpenAttempts = 3;

// All of it, or DataLoss where the file ends before.
absl::Status ReadAt(int fd, uint64_t offset, MutableByteSpan into, const std::string& path) {
  while (!into.empty()) {
    const ssize_t n = pread(fd, into.data(), into.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, path, "reading");
    if (n == 0) return absl::DataLossError(fmt::format("{}: ends at byte {}", path, offset));
    offset += static_cast<uint64_t>(n);
    into = into.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status WriteAt(int fd, uint64_t offset, ByteSpan bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, path, "writing");
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

// Another process may be faster. The file is locked until this ends.
absl::Status Make(const std::string& path, const std::string& head) {
  ASSIGN_OR_RETURN(const auto made, AtomicFile::Create(path, path, Durability::kUnsynced));
  RETURN_IF_ERROR(made->Append(AsBytes(head)));
  const absl::Status placed = made->Commit(/*only_if_absent=*/true).status();
  return absl::IsAlreadyExists(placed) ? absl::OkStatus() : placed;
}

bool IsAt(int fd, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CacheFile>> CacheFile::Open(const std::string& path, const CacheIdentity& identity) {
  for (int attempt = 0; attempt < kOpenAttempts; ++attempt) {
    UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!fd) return ErrnoStatus(errno, path, "opening");
    // Somebody who makes room has it, and is about to remove it.
    if (flock(fd.get(), LOCK_SH | LOCK_NB) != 0 || !IsAt(fd.get(), path)) continue;
    std::string head(kHeadBytes, '\0');
    RETURN_IF_ERROR(ReadAt(fd.get(), 0, AsWritableBytes(head), path));
    const absl::StatusOr<uint64_t> object_bytes = DecodeHead(AsBytes(head), identity);
    if (!object_bytes.ok()) return Annotate(object_bytes.status(), path);
    futimens(fd.get(), nullptr);  // it was used now; a file system that cannot say so is none the worse
    std::unique_ptr<CacheFile> file(new CacheFile(std::move(fd), path, *object_bytes));
    const std::lock_guard lock(file->mutex_);
    RETURN_IF_ERROR(file->LearnRecords());
    return file;
  }
  return absl::NotFoundError(fmt::format("{}: was removed to make room", path));
}

absl::StatusOr<std::unique_ptr<CacheFile>> CacheFile::OpenOrMake(const std::string& path, const CacheIdentity& identity,
                                                                 uint64_t object_bytes) {
  absl::StatusOr<std::unique_ptr<CacheFile>> file = Open(path, identity);
  if (absl::IsDataLoss(file.status())) {
    unlink(path.c_str());  // of another version of Millrace, or damaged
  } else if (!absl::IsNotFound(file.status())) {
    return file;
  }
  ASSIGN_OR_RETURN(const std::string head, EncodeHead(identity, object_bytes));
  RETURN_IF_ERROR(Make(path, head));
  return Open(path, identity);
}

size_t CacheFile::spans() const {
  const std::lock_guard lock(mutex_);
  return spans_.size();
}

// What this and other processes have added since.
absl::Status CacheFile::LearnRecords() {
  struct stat info {};
  if (fstat(fd_.get(), &info) != 0) return ErrnoStatus(errno, path_, "looking it up");
  const uint64_t begin = RecordsAt(object_bytes_);
  const auto size = static_cast<uint64_t>(info.st_size);
  const uint64_t all = size > begin ? (size - begin) / kRecordBytes : 0;
  std::string records;
  while (records_ < all) {
    const uint64_t count = std::min<uint64_t>(all - records_, kRecordsAtOnce);
    records.resize(count * kRecordBytes);
    RETURN_IF_ERROR(ReadAt(fd_.get(), begin + records_ * kRecordBytes, AsWritableBytes(records), path_));
    for (uint64_t i = 0; i < count; ++i) {
      const auto span = DecodeRecord(AsBytes(records).subspan(i * kRecordBytes, kRecordBytes), object_bytes_);
      if (span) spans_.Add(*span);
    }
    records_ += count;
  }
  return absl::OkStatus();
}

std::vector<ByteRange> CacheFile::Missing(ByteRange range) const {
  const std::lock_guard lock(mutex_);
  return spans_.Missing(range);
}

absl::Status CacheFile::Read(ByteRange range, std::span<const SpanChecksum> checksums, MutableByteSpan into) {
  std::vector<CachedSpan> touching;
  {
    const std::lock_guard lock(mutex_);
    if (!spans_.Covers(range)) RETURN_IF_ERROR(LearnRecords());
    if (!spans_.Covers(range)) return absl::NotFoundError(fmt::format("{}: does not have these bytes", path_));
    if (checksums.empty()) touching = spans_.Touching(range);
  }
  const bool whole =
      touching.empty() || (touching.front().range.offset == range.offset && touching.back().range.end() == range.end());
  if (!whole) return absl::NotFoundError(fmt::format("{}: has these bytes only as a part of others", path_));
  absl::Status status = ReadAt(fd_.get(), kDataAt + range.offset, into, path_);
  if (status.ok()) status = Check(range, checksums, std::move(touching), into);
  if (!status.ok()) {
    const std::lock_guard lock(mutex_);
    spans_.RemoveTouching(range);
  }
  return status;
}

absl::Status CacheFile::Check(ByteRange range, std::span<const SpanChecksum> checksums,
                              std::vector<CachedSpan> touching, MutableByteSpan into) {
  for (const SpanChecksum& sum : checksums) touching.push_back({sum.range, sum.crc32c});
  for (const CachedSpan& span : touching) {
    if (Crc32c(into.subspan(span.range.offset - range.offset, span.range.length)) == span.crc32c) continue;
    return absl::DataLossError(
        fmt::format("{}: bytes {}+{} of the object are damaged here", path_, span.range.offset, span.range.length));
  }
  return absl::OkStatus();
}

uint64_t CacheFile::DiskBytes(uint64_t length) {
  // It may begin and end within blocks; and a record.
  return (length / kDiskBlock + 2) * kDiskBlock + kRecordBytes;
}

absl::Status CacheFile::Write(uint64_t offset, ByteSpan bytes) {
  const CachedSpan span{{offset, bytes.size()}, Crc32c(bytes)};
  RETURN_IF_ERROR(WriteAt(fd_.get(), kDataAt + offset, bytes, path_));
  return AppendRecord(span);
}

// Under an exclusive lock of the place of records: a record that a full disk cut short must not shift those behind it.
// (The lock of the whole file is another kind, held by all who have it open.)
absl::Status CacheFile::AppendRecord(const CachedSpan& span) {
  const std::lock_guard held(mutex_);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  while (fcntl(fd_.get(), F_OFD_SETLKW, &lock) != 0) {
    if (errno != EINTR) return ErrnoStatus(errno, path_, "locking");
  }
  absl::Status status = LearnRecords();  // so that records_ is the end
  if (status.ok()) {
    const std::string record = EncodeRecord(span);
    status = WriteAt(fd_.get(), RecordsAt(object_bytes_) + records_ * kRecordBytes, AsBytes(record), path_);
  }
  lock.l_type = F_UNLCK;
  fcntl(fd_.get(), F_OFD_SETLK, &lock);
  RETURN_IF_ERROR(status);
  return LearnRecords();
}

}  // namespace millrace
