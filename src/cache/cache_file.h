#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/rng.h"
#include "base/unique_fd.h"
#include "cache/cache_format.h"
#include "cache/disk_usage.h"
#include "cache/shared_file.h"
#include "s3/object.h"

namespace millrace {

/// Says which bytes of a range are wanted: all, or only those of the checksums that are given, if there are any.
enum class ReadBytes { kAll, kChecked };

/// Holds what is kept of one version of an object: one file of the cache. Several processes may read, write and remove
/// ranges at once. Each holder of an open file has a shared lock, so that nobody unlinks the file. Thread-safe;
/// blocking: what changes ranges waits kLockPatience for another process that does, once, and fails with
/// DeadlineExceeded then.
///
/// A file in memory does the same for one process. Its bytes are in a stretch of another file. Its records are those
/// that each file holds in memory anyway.
class CacheFile {
 public:
  /// NotFound if there is none, or another process is about to make or to remove it; DataLoss if it is no sound file of
  /// that name; ResourceExhausted if the program has too many files open; PermissionDenied if it is another user's;
  /// otherwise the system's error.
  static absl::StatusOr<std::unique_ptr<CacheFile>> Open(const std::string& path);

  /// Holds the first range of a new file.
  struct First {
    uint64_t offset = 0;
    ByteSpan bytes;
    UseHints hints;
    /// Returns true if a file can be made with it: it is not so long that Write would make it several ranges.
    bool fits() const;
    /// Returns the bytes of the disk that it takes beside kEmptyDiskBytes.
    uint64_t disk_bytes() const;
  };

  /// Makes it if there is none, and opens it. Waits longer than Open for a process that makes or removes it. `made`
  /// says that this call made it, with `first` in it unless that is null. Both in one go cost a part of what it costs
  /// to make a file and write to it. NotFound also if the program has too many files open: the disk may be fine.
  /// InvalidArgument if its names are too long, or no file may be as long as this slab. DeadlineExceeded if another
  /// process has locked it all the time.
  static absl::StatusOr<std::unique_ptr<CacheFile>> OpenOrMake(const std::string& path, const CacheIdentity& identity,
                                                               uint64_t object_bytes, const First* first, bool* made);

  /// Makes an empty one in memory. `memory` is a file without a name (memfd), which outlives it, and has nothing at
  /// `data_at` and for `object_bytes` behind that.
  static std::unique_ptr<CacheFile> InMemory(int memory, uint64_t data_at, const CacheIdentity& identity,
                                             uint64_t object_bytes);

  const CacheIdentity& identity() const { return head_.identity; }
  uint64_t object_bytes() const { return head_.object_bytes; }
  size_t spans() const;
  /// Returns the ranges that it has now, in order.
  absl::StatusOr<std::vector<CachedSpan>> All();

  /// Reads a range into `into`, of its length. NotFound if a part of it is not there. The bytes are checked against
  /// `checksums`, of ascending spans within the range. Ranges that hold other bytes of it are read and checked whole,
  /// as they were written, in place and with at most 128 KiB more memory. NotFound if they reach beyond it by more than
  /// 32 MiB. Damaged ranges are removed: DataLoss, and `freed`, if not null, grows by the bytes of the disk that they
  /// took.
  absl::Status Read(ByteRange range, std::span<const SpanChecksum> checksums, MutableByteSpan into,
                    uint64_t* freed = nullptr, ReadBytes bytes = ReadBytes::kAll);

  /// Returns the parts of a range that are not there.
  std::vector<ByteRange> Missing(ByteRange range) const;

  /// Returns the bytes of the disk that Write takes at most for a range of that many.
  static uint64_t DiskBytes(uint64_t length);
  /// A file without ranges takes so many bytes of the disk.
  static constexpr uint64_t kEmptyDiskBytes = cache_format::kHeadBytes + cache_format::kChangesBytes + kFileMarginBytes;

  /// Counts the bytes of the disk that a file takes.
  struct Room {
    /// Asked before each part is written; its error ends the call.
    absl::FunctionRef<absl::Status(uint64_t disk_bytes)> take;
    /// Bytes that were taken were not needed, since writing failed.
    absl::FunctionRef<void(uint64_t disk_bytes)> give_back;
  };
  /// Adds what is missing of a range, as one range or several of up to 1 MiB. First come the bytes, then their
  /// record: a process that dies in between leaves nothing that counts. A part that cannot be written whole
  /// leaves nothing on the disk. NotFound if the file was unlinked meanwhile.
  absl::Status Write(uint64_t offset, ByteSpan bytes, const UseHints& hints, const Room& room);

  /// Removes one of the ranges that were written. If a checksum is given, the range must have it. Returns the bytes of
  /// the disk that it took, 0 if it is not there.
  absl::StatusOr<uint64_t> Remove(ByteRange range, std::optional<uint32_t> crc32c = std::nullopt);

  // ---- Of a slab, which has whole small objects of many kinds.

  /// This process may change records. Those of a slab lie behind its places, beyond some limits (ulimit -f).
  bool can_change() const { return CanChange(0); }
  bool is_slab() const { return cache_format::IsSlab(head_.identity); }
  /// Reads a range of a small object; returns the size of the object. NotFound if it is not there. The object is
  /// checked whole, and then the record again: without a lock, its place may be another object's by now. DataLoss
  /// and `freed` as Read has them.
  absl::StatusOr<uint64_t> ReadSmall(const SmallObject& small, ByteRange range, std::span<const SpanChecksum> checksums,
                                     MutableByteSpan into, uint64_t* freed);
  /// Reads a small object whole, texts too, into `into`, of its length. NotFound if its place is another one's by now.
  /// DataLoss and `freed` as Read has them.
  absl::Status CheckSmall(const CachedSpan& span, MutableByteSpan into, uint64_t* freed);
  /// Returns the place of a small object, as far as this process knows.
  std::optional<CachedSpan> FindSmall(const SmallObject& small);
  /// Adds a small object, in the smallest place that is free. AlreadyExists if it is there, NotFound if the slab was
  /// unlinked. OutOfRange if the slab cannot take it: no place is free, or no file may be so long.
  absl::Status AddSmall(const SmallObject& small, ByteSpan bytes, const UseHints& hints, const Room& room);
  /// Returns the bytes that removing a range leaves unused. If `bytes` are to come to its place, they are as
  /// CachedSpans::LeftBeside has them; nullopt if they do not fit. With 0, they are the part of the range in blocks of
  /// the disk that stay.
  std::optional<int64_t> WasteOfRemoving(ByteRange range, uint64_t bytes) const;
  /// Returns the owner of a range: in a slab, as its bytes say; else the identity of the file. nullopt if it is damaged
  /// or gone. `object_bytes`, if not null, becomes the size of the object.
  std::optional<CacheIdentity> OwnerOf(const CachedSpan& span, uint64_t* object_bytes = nullptr) const;
  /// Frees what writers that were killed have left: bytes of the disk that no range has. Returns how many; 0 if this
  /// was done since the file was opened.
  uint64_t Reclaim();
  /// Unlinks the file if it has no range and nobody else has it open; returns the bytes of the disk that it took.
  uint64_t UnlinkIfEmpty();
  /// For tests.
  void set_patience(std::chrono::milliseconds patience) { patience_ = patience; }

  /// Changes the hints of the ranges that touch this one, to what `change` makes of them.
  void ChangeHints(ByteRange range, absl::FunctionRef<UseHints(const UseHints&, ByteRange there)> change);

  /// Returns one of its ranges, drawn at random, with hints as they are now in the file; nullopt if there is none.
  std::optional<CachedSpan> Any(Rng& rng);
  /// Returns a range that was written, as it is now; nullopt if it is not there.
  std::optional<CachedSpan> Current(ByteRange range);

 private:
  static absl::StatusOr<std::unique_ptr<CacheFile>> OpenWithin(const std::string& path, int attempts);
  CacheFile(UniqueFd fd, std::string path, CacheHead head)
      : fd_(std::move(fd)), data_fd_(fd_.get()), path_(std::move(path)), head_(std::move(head)), spans_(SlabBytes()) {}
  CacheFile(int memory, uint64_t data_at, CacheHead head)
      : fd_(-1),
        data_fd_(memory),
        data_at_(data_at),
        path_("the cache in memory"),
        head_(std::move(head)),
        spans_(SlabBytes()) {}
  uint64_t SlabBytes() const { return is_slab() ? head_.object_bytes : 0; }
  bool in_memory() const { return !fd_; }
  uint64_t RecordBytes(uint64_t records) const;
  uint64_t MarginBytes(ByteRange range) const;
  uint64_t PlaceOf(uint32_t record) const;
  bool CanChange(uint32_t record) const;
  absl::Status TooLong() const;
  uint64_t DiskBytesNow() const;
  bool IsRemoved() const;
  absl::Status LearnRecords(bool locked);  // with mutex_ held; `locked`: and the lock of records
  absl::Status LearnAll();
  absl::Status LearnRecord(uint32_t record);
  absl::Status WritePart(ByteRange range, ByteSpan bytes, const UseHints& hints, const Room& room, uint32_t tag = 0);
  absl::Status SetRecord(uint32_t record, const std::optional<CachedSpan>& span);
  absl::Status Punch(uint64_t first_block, uint64_t end_block) const;
  absl::Status Announce(uint32_t record);
  absl::StatusOr<uint64_t> RemoveLocked(ByteRange range, std::optional<uint32_t> crc32c);
  bool IsStill(const CachedSpans::Entry& entry);
  std::optional<CachedSpan> Reread(const CachedSpans::Entry& entry);
  absl::Status Check(ByteRange range, std::span<const SpanChecksum> checksums, ByteSpan read,
                     std::vector<ByteRange>* damaged) const;
  void RemoveTouching(ByteRange range, uint64_t* freed);

  const UniqueFd fd_;  // -1: in memory
  const int data_fd_;
  const uint64_t data_at_ = cache_format::kDataAt;
  const std::string path_;
  const CacheHead head_;

  std::mutex write_mutex_;                              // before mutex_: the lock of records is the process's
  std::chrono::milliseconds patience_ = kLockPatience;  // with other processes that change records
  bool unlinked_ = false;
  bool reclaimed_ = false;
  mutable std::mutex mutex_;
  CachedSpans spans_;
  uint64_t announced_ = 0;  // changes, as far as is known
  uint64_t changes_ = 0;    // of these, spans_ knows so many for certain
  bool learned_ = false;
};

}  // namespace millrace
