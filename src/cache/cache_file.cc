#include "cache/cache_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "base/atomic_file.h"
#include "base/crypto.h"
#include "base/errno_status.h"
#include "cache/records_lock.h"
#include "cache/shared_file.h"
#include "cache/span_reader.h"

namespace millrace {

using namespace cache_format;

namespace {

constexpr uint64_t kDiskBlock = 4096;
constexpr uint64_t kRecordsOfBlock = kDiskBlock / kRecordBytes;
// In memory a record is an entry of two containers, which may be half empty.
constexpr uint64_t kRecordsOfBlockInMemory = 32;
// While another process makes the file, or is about to unlink it: both take moments, but for a process that waits for
// its turn of a busy CPU. Who reads can go to the store, who writes has time.
constexpr std::chrono::microseconds kOpenPause{500};
constexpr int kBriefAttempts = 20;
constexpr int kPatientAttempts = kLockPatience / kOpenPause;
// A range that is longer is written as several, each checked and removed by itself: small reads then cost little.
constexpr uint64_t kWrittenBytes = uint64_t{1} << 20;
static_assert(kWrittenBytes <= kMaxSpanBytes);
// So much is read beyond a range at most, so that it can be checked.
constexpr uint64_t kMaxBeyondBytes = uint64_t{32} << 20;

// Returns what Write leaves: the change, of record 0, and that record, which follows its page.
std::string FirstRecord(const CacheFile::First& first) {
  std::string text;
  AppendLe(text, uint64_t{1});
  AppendLe(text, uint32_t{0});
  text.resize(kChangesBytes);
  return text + EncodeRecord({{first.offset, first.bytes.size()}, Crc32c(first.bytes), first.hints});
}

// Another process may be faster. The file is locked until this ends.
absl::Status Make(const std::string& path, const std::string& head, uint64_t object_bytes,
                  const CacheFile::First* first, bool* made) {
  ASSIGN_OR_RETURN(const mode_t mode, MakeFolderInCache(path.substr(0, path.rfind('/'))));
  ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(path, path, Durability::kUnsynced, mode));
  if (mode != 0600) RETURN_IF_ERROR(file->SetMode(mode));  // the umask may have taken something
  RETURN_IF_ERROR(file->Append(AsBytes(head)));
  if (first != nullptr) {
    RETURN_IF_ERROR(file->WriteAt(kDataAt + first->offset, first->bytes));
    RETURN_IF_ERROR(file->WriteAt(ChangesAt(object_bytes), AsBytes(FirstRecord(*first))));
  }
  const absl::Status placed = file->Commit(/*only_if_absent=*/true).status();
  *made = placed.ok();
  return absl::IsAlreadyExists(placed) ? absl::OkStatus() : placed;
}

// Returns true if the checksums, which ascend, are of all bytes that two ranges have in common.
bool AreChecked(ByteRange one, ByteRange other, std::span<const SpanChecksum> checksums) {
  uint64_t at = std::max(one.offset, other.offset);
  for (const SpanChecksum& sum : checksums) {
    if (sum.range.offset > at) break;
    at = std::max(at, sum.range.end());
  }
  return at >= std::min(one.end(), other.end());
}

}  // namespace

absl::StatusOr<std::unique_ptr<CacheFile>> CacheFile::Open(const std::string& path) {
  absl::StatusOr<std::unique_ptr<CacheFile>> file = OpenWithin(path, kBriefAttempts);
  if (absl::IsDeadlineExceeded(file.status())) return absl::NotFoundError(file.status().message());
  return file;
}

absl::StatusOr<std::unique_ptr<CacheFile>> CacheFile::OpenWithin(const std::string& path, int attempts) {
  bool locked = false;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!fd) return ErrnoStatus(errno, path, "opening");
    RETURN_IF_ERROR(CheckShared(fd.get(), path));
    locked = flock(fd.get(), LOCK_SH | LOCK_NB) != 0;
    if (locked) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) return ErrnoStatus(errno, path, "locking");
      std::this_thread::sleep_for(kOpenPause);
      continue;
    }
    if (!IsAt(fd.get(), path)) continue;
    std::string bytes(kHeadBytes, '\0');
    RETURN_IF_ERROR(ReadAt(fd.get(), 0, AsWritableBytes(bytes), path));
    absl::StatusOr<CacheHead> head = DecodeHead(AsBytes(bytes));
    if (!head.ok()) return Annotate(head.status(), path);
    if (!path.ends_with(FileName(head->identity)))
      return absl::DataLossError(fmt::format("{}: has the name of another file", path));
    std::unique_ptr<CacheFile> file(new CacheFile(std::move(fd), path, *std::move(head)));
    const std::lock_guard lock(file->mutex_);
    RETURN_IF_ERROR(file->LearnRecords(/*locked=*/false));
    return file;
  }
  if (locked) return absl::DeadlineExceededError(fmt::format("{}: another process has locked it", path));
  return absl::NotFoundError(fmt::format("{}: was removed to make room", path));
}

absl::StatusOr<std::unique_ptr<CacheFile>> CacheFile::OpenOrMake(const std::string& path, const CacheIdentity& identity,
                                                                 uint64_t object_bytes, const First* first,
                                                                 bool* made) {
  *made = false;
  if (IsSlab(identity) && FileSizeLimit() <= RecordsAt(object_bytes))
    return absl::InvalidArgumentError(fmt::format("{}: the limit of the file size (ulimit -f) allows no slab", path));
  absl::StatusOr<std::unique_ptr<CacheFile>> file = OpenWithin(path, kPatientAttempts);
  // Opening what is there takes no room on the disk.
  if (absl::IsResourceExhausted(file.status())) return absl::NotFoundError(file.status().message());
  if (absl::IsDataLoss(file.status())) {
    unlink(path.c_str());  // of another version of Millrace, or damaged
  } else if (!absl::IsNotFound(file.status())) {
    return file;
  }
  ASSIGN_OR_RETURN(const std::string head, EncodeHead(identity, object_bytes));
  const absl::Status made_it = Make(path, head, object_bytes, first, made);
  // Is the disk full, or are too many files open? Opening tells.
  if (absl::IsResourceExhausted(made_it) && absl::IsResourceExhausted(OpenWithin(path, 1).status()))
    return absl::NotFoundError(made_it.message());
  RETURN_IF_ERROR(made_it);
  file = OpenWithin(path, kPatientAttempts);
  if (absl::IsResourceExhausted(file.status())) return absl::NotFoundError(file.status().message());
  return file;
}

bool CacheFile::First::fits() const {
  return !bytes.empty() && offset / kWrittenBytes == (offset + bytes.size() - 1) / kWrittenBytes;
}

uint64_t CacheFile::First::disk_bytes() const {
  const uint64_t blocks = (offset + bytes.size() + kDiskBlock - 1) / kDiskBlock - offset / kDiskBlock;
  return (blocks + 1) * kDiskBlock;  // one of records
}

std::unique_ptr<CacheFile> CacheFile::InMemory(int memory, uint64_t data_at, const CacheIdentity& identity,
                                               uint64_t object_bytes) {
  return std::unique_ptr<CacheFile>(new CacheFile(memory, data_at, CacheHead{identity, object_bytes}));
}

uint64_t CacheFile::RecordBytes(uint64_t records) const {
  const uint64_t of_block = in_memory() ? kRecordsOfBlockInMemory : kRecordsOfBlock;
  return (records + of_block - 1) / of_block * kDiskBlock;
}

// Returns the bytes that are counted for a range beside its blocks.
uint64_t CacheFile::MarginBytes(ByteRange range) const {
  return is_slab() && !in_memory() ? SlabMarginBytes(range.length) : 0;
}

size_t CacheFile::spans() const {
  const std::lock_guard lock(mutex_);
  return spans_.size();
}

absl::StatusOr<std::vector<CachedSpan>> CacheFile::All() {
  const std::lock_guard lock(mutex_);
  learned_ = false;  // with hints as they are now
  RETURN_IF_ERROR(LearnRecords(/*locked=*/false));
  return spans_.All();
}

// ---- Reading

std::vector<ByteRange> CacheFile::Missing(ByteRange range) const {
  const std::lock_guard lock(mutex_);
  return spans_.Missing(range);
}

absl::Status CacheFile::Read(ByteRange range, std::span<const SpanChecksum> checksums, MutableByteSpan into,
                             uint64_t* freed, ReadBytes bytes) {
  std::vector<CachedSpans::Entry> touching;
  {
    const std::lock_guard lock(mutex_);
    if (!spans_.Covers(range)) RETURN_IF_ERROR(LearnRecords(/*locked=*/false));
    if (!spans_.Covers(range)) return absl::NotFoundError(fmt::format("{}: does not have these bytes", path_));
    if (checksums.empty() || bytes == ReadBytes::kAll) touching = spans_.Touching(range);
  }
  // Those that the checksums do not cover can be checked only as they were written, whole.
  std::vector<CachedSpan> spans;
  uint64_t beyond = 0;
  for (const CachedSpans::Entry& entry : touching) {
    const ByteRange there = entry.span.range;
    if (AreChecked(there, range, checksums)) continue;
    const uint64_t within = std::min(there.end(), range.end()) - std::max(there.offset, range.offset);
    beyond += there.length - within;
    spans.push_back(entry.span);
  }
  if (beyond > kMaxBeyondBytes) {
    return absl::NotFoundError(fmt::format("{}: has these bytes only as a part of large others", path_));
  }
  std::vector<ByteRange> damaged;
  absl::Status status = ReadSpans(data_fd_, data_at_, path_, range, spans, into, &damaged);
  if (status.ok()) status = Check(range, checksums, into, &damaged);
  if (!absl::IsDataLoss(status)) return status;
  // Damage, or another process has removed it meanwhile.
  for (const ByteRange& part : damaged) RemoveTouching(part, freed);
  return status;
}

absl::Status CacheFile::Check(ByteRange range, std::span<const SpanChecksum> checksums, ByteSpan read,
                              std::vector<ByteRange>* damaged) const {
  absl::Status first;
  for (const SpanChecksum& sum : checksums) {
    if (Crc32c(read.subspan(sum.range.offset - range.offset, sum.range.length)) == sum.crc32c) continue;
    damaged->push_back(sum.range);
    if (!first.ok()) continue;
    first = absl::DataLossError(
        fmt::format("{}: bytes {}+{} of the object are damaged here", path_, sum.range.offset, sum.range.length));
  }
  return first;
}

void CacheFile::RemoveTouching(ByteRange range, uint64_t* freed) {
  std::vector<CachedSpans::Entry> touching;
  {
    const std::lock_guard lock(mutex_);
    touching = spans_.Touching(range);
  }
  for (const CachedSpans::Entry& entry : touching) {
    const absl::StatusOr<uint64_t> removed = Remove(entry.span.range);
    if (removed.ok() && freed != nullptr) *freed += *removed;
  }
}

// ---- Writing and removing

uint64_t CacheFile::DiskBytes(uint64_t length) {
  // It may begin and end within blocks; and maybe a block of records.
  return (length / kDiskBlock + 3) * kDiskBlock;
}

absl::Status CacheFile::Write(uint64_t offset, ByteSpan bytes, const UseHints& hints, const Room& room) {
  const std::lock_guard writing(write_mutex_);
  ASSIGN_OR_RETURN(const RecordsLock lock, RecordsLock::Take(fd_.get(), path_, patience_));
  unlinked_ = unlinked_ || IsRemoved();
  if (unlinked_) return absl::NotFoundError(fmt::format("{}: was removed", path_));
  std::vector<ByteRange> missing;
  {
    const std::lock_guard held(mutex_);
    RETURN_IF_ERROR(LearnRecords(/*locked=*/true));
    missing = spans_.Missing({offset, bytes.size()});
  }
  for (ByteRange part : missing) {
    while (part.length > 0) {
      const ByteRange piece{part.offset, std::min(part.length, kWrittenBytes - part.offset % kWrittenBytes)};
      RETURN_IF_ERROR(WritePart(piece, bytes.subspan(piece.offset - offset, piece.length), hints, room));
      part = {piece.end(), part.length - piece.length};
    }
  }
  return absl::OkStatus();
}

// The caller holds the lock of records.
absl::Status CacheFile::WritePart(ByteRange range, ByteSpan bytes, const UseHints& hints, const Room& room,
                                  uint32_t tag) {
  uint32_t record = 0;
  uint64_t of_records = 0;
  std::pair<uint64_t, uint64_t> own;
  {
    const std::lock_guard held(mutex_);
    record = spans_.FreeRecord();
    if (record == spans_.records()) of_records = RecordBytes(record + 1) - RecordBytes(record);
    own = spans_.OwnBlocks(range);
  }
  const uint64_t disk_bytes = (own.second - own.first) * kDiskBlock + of_records + MarginBytes(range);
  RETURN_IF_ERROR(room.take(disk_bytes));
  absl::Status status = WriteAt(data_fd_, data_at_ + range.offset, bytes, path_);
  if (status.ok()) {
    const std::lock_guard held(mutex_);
    status = SetRecord(record, CachedSpan{range, Crc32c(bytes), hints, tag});
  }
  // Else what was written of it would take room that nobody knows of.
  if (!status.ok() && Punch(own.first, own.second).ok()) room.give_back(disk_bytes);
  return status;
}

absl::Status CacheFile::Punch(uint64_t first_block, uint64_t end_block) const {
  if (end_block <= first_block) return absl::OkStatus();
  const auto at = static_cast<off_t>(data_at_ + first_block * kDiskBlock);
  const auto length = static_cast<off_t>((end_block - first_block) * kDiskBlock);
  if (fallocate(data_fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, length) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, path_, "removing bytes to make room");
}

absl::StatusOr<uint64_t> CacheFile::Remove(ByteRange range, std::optional<uint32_t> crc32c) {
  const std::lock_guard writing(write_mutex_);
  ASSIGN_OR_RETURN(const RecordsLock lock, RecordsLock::Take(fd_.get(), path_, patience_));
  return RemoveLocked(range, crc32c);
}

// First the bytes go, then the record: a process that dies in between leaves a record whose checksum does not match,
// and not bytes that nobody knows of.
absl::StatusOr<uint64_t> CacheFile::RemoveLocked(ByteRange range, std::optional<uint32_t> crc32c) {
  const std::lock_guard held(mutex_);
  RETURN_IF_ERROR(LearnRecords(/*locked=*/true));
  const std::optional<CachedSpans::Entry> found = spans_.Find(range);
  if (!found || (crc32c && found->span.crc32c != *crc32c)) return 0;
  if (!CanChange(found->record)) return TooLong();
  const auto [first, end] = spans_.OwnBlocks(range);
  RETURN_IF_ERROR(Punch(first, end));
  RETURN_IF_ERROR(SetRecord(found->record, std::nullopt));
  return IsRemoved() ? 0 : (end - first) * kDiskBlock + MarginBytes(range);
}

bool CacheFile::CanChange(uint32_t record) const {
  return in_memory() || !is_slab() || PlaceOf(record) + kRecordBytes <= FileSizeLimit();
}

absl::Status CacheFile::TooLong() const {
  return absl::OutOfRangeError(
      fmt::format("{}: its records lie beyond the limit of the file size; raise it (ulimit -f)", path_));
}

// Somebody may have removed the whole folder, and the count of its bytes began again.
bool CacheFile::IsRemoved() const {
  struct stat info {};
  return !in_memory() && fstat(fd_.get(), &info) == 0 && info.st_nlink == 0;
}

uint64_t CacheFile::DiskBytesNow() const {
  struct stat info {};
  return fstat(fd_.get(), &info) == 0 ? static_cast<uint64_t>(info.st_blocks) * kStatBlockBytes : 0;
}

uint64_t CacheFile::Reclaim() {
  const std::lock_guard writing(write_mutex_);
  if (in_memory() || reclaimed_ || unlinked_ || IsRemoved()) return 0;
  std::chrono::milliseconds none{};  // if another process changes it, there is time later
  const absl::StatusOr<RecordsLock> lock = RecordsLock::Take(fd_.get(), path_, none);
  const std::lock_guard held(mutex_);
  if (!lock.ok() || !LearnRecords(/*locked=*/true).ok()) return 0;
  reclaimed_ = true;
  // Nobody writes now, so what is neither of a range nor of the records is of nobody.
  std::vector<std::pair<uint64_t, uint64_t>> gaps;
  uint64_t at = 0;
  uint64_t known = 0;
  for (const CachedSpan& span : spans_.All()) {
    const uint64_t first = span.range.offset / kDiskBlock;
    const uint64_t end = (span.range.end() + kDiskBlock - 1) / kDiskBlock;
    if (first > at) gaps.emplace_back(at, first);
    known += (end - std::max(first, at)) * kDiskBlock + MarginBytes(span.range);
    at = end;
  }
  gaps.emplace_back(at, (object_bytes() + kDiskBlock - 1) / kDiskBlock);
  const uint64_t before = DiskBytesNow();
  if (before <= known + RecordBytes(spans_.records()) + kEmptyDiskBytes) return 0;
  for (const auto& [first, end] : gaps) {
    if (!Punch(first, end).ok()) break;
  }
  return before - std::min(before, DiskBytesNow());
}

uint64_t CacheFile::UnlinkIfEmpty() {
  const std::lock_guard writing(write_mutex_);
  const absl::StatusOr<RecordsLock> lock = RecordsLock::Take(fd_.get(), path_, patience_);
  if (!lock.ok() || unlinked_) return 0;
  uint64_t records = 0;
  {
    const std::lock_guard held(mutex_);
    if (!LearnRecords(/*locked=*/true).ok() || spans_.size() > 0) return 0;
    records = spans_.records();
  }
  const uint64_t taken = kEmptyDiskBytes + RecordBytes(records);
  if (in_memory()) {
    unlinked_ = true;
    return taken;
  }
  if (flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) {
    struct stat info {};
    const bool own = fstat(fd_.get(), &info) == 0 && IsAt(fd_.get(), path_);
    if (own && unlink(path_.c_str()) == 0) {
      unlinked_ = true;
      return std::min(taken, static_cast<uint64_t>(info.st_blocks) * kStatBlockBytes + kFileMarginBytes);
    }
  }
  const absl::Status shared = LockInTime(path_, patience_, [&] { return flock(fd_.get(), LOCK_SH | LOCK_NB); });
  unlinked_ = !shared.ok() || !IsAt(fd_.get(), path_);  // another process was faster, while there was no lock
  return 0;
}

}  // namespace millrace
