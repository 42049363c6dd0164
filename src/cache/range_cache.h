#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "base/thread_pool.h"
#include "cache/cache_file.h"
#include "cache/disk_usage.h"
#include "cache/fetch_claims.h"
#include "cache/job_table.h"
#include "cache/open_files.h"
#include "cache/planned_read.h"
#include "cache/room_maker.h"
#include "cache/shared_file.h"

namespace millrace {

struct RangeCacheOptions {
  /// Users say this in place of a folder, to keep ranges in memory. (A folder of that name is "./memory".)
  static constexpr std::string_view kMemory = "memory";
  bool in_memory() const { return folder == kMemory; }

  std::string folder;        // made if it does not exist
  uint64_t size_bytes = 0;   // that the cache takes of the disk at most; 0: as much as leaves the share below free
  std::string tenant;        // of all that is read; "": that of the credentials it is read with
  double free_share = 0.05;  // of the file system, which the cache leaves free whatever its size
  /// How long it waits for a lock that another process has on the cache: then it is not used, or takes nothing new.
  std::chrono::milliseconds lock_patience = kLockPatience;
};

/// Returns InvalidArgument for a tenant that a file of the cache could not carry, or that is no printable text.
absl::Status CheckCacheTenant(std::string_view tenant);

/// Counts the bytes of ranges that were read from the store, by their fate.
struct KeepCounts {
  uint64_t written_bytes = 0;
  uint64_t not_admitted_bytes = 0;  // they would have been removed before their use
  uint64_t dropped_bytes = 0;       // the disk did not keep up, or failed
  uint64_t waiting_bytes = 0;       // for the disk, at this moment
};

/// Keeps ranges of objects that were read once, on a disk (DiskCache) or in memory (MemoryCache), within a bound.
///
///   if (!cache.Read(identity, range, checksums, into)) {
///     ...  // read it from the store
///     cache.Keep(identity, object_bytes, range.offset, into);
///   }
///
/// If there is no room, EvictionPolicy decides what goes: of a plan, what is needed latest. Thread-safe.
class RangeCache {
 public:
  /// Opens a cache on a disk or in memory, as the options say. Null if there are none, or, with a warning, if the
  /// folder cannot be used. The budget is for a cache in memory, and outlives it; errors are those of
  /// MemoryCache::Open.
  static absl::StatusOr<std::unique_ptr<RangeCache>> Open(const std::optional<RangeCacheOptions>& options,
                                                          MemoryBudget& budget);
  /// Waits until what was given to Keep is written.
  virtual ~RangeCache() = default;
  RangeCache(const RangeCache&) = delete;
  RangeCache& operator=(const RangeCache&) = delete;

  /// Adds a reader of objects of a store, which begins at `clock`: as long as its entry lives, its job's ranges are not
  /// taken for forgotten ones. Null if the table of jobs is full or cannot be written; then it reads all the same.
  std::unique_ptr<JobEntry> Join(const std::string& store, uint32_t job, uint64_t period, uint64_t clock = 0);

  /// Reads a range, if all of it is there and sound; returns the size of the object. `checksums` as CacheFile::Read has
  /// them. Blocking.
  std::optional<uint64_t> Read(const CacheIdentity& identity, ByteRange range, std::span<const SpanChecksum> checksums,
                               MutableByteSpan into, ReadBytes bytes = ReadBytes::kAll);
  /// Returns true if something is there of that version of the object.
  bool Has(const CacheIdentity& identity);
  /// A read through the cache has found these ranges: notes when they are read next.
  void Touch(const CacheIdentity& identity, ByteRange range, const PlannedRead* plan);

  /// Returns true if Keep would do anything.
  bool keeps() const { return writes_.load(std::memory_order_relaxed); }

  /// Copies the bytes and writes them later: those of each span of the plan for itself, or all as one. Drops them if
  /// 64 MiB would wait then, unless they are the only ones, or if there is no room on the disk: the disk never holds up
  /// who reads. In memory, the budget must also have what is longer than that. `until` is let go when they are written
  /// or dropped, by a thread of the cache: that may take a while.
  void Keep(const CacheIdentity& identity, uint64_t object_bytes, uint64_t offset, ByteSpan bytes,
            const PlannedRead* plan = nullptr, std::shared_ptr<void> until = nullptr);

  /// Waits until what was given to Keep before is written.
  void Flush();

  /// Returns the bytes that are reserved of the process's budget; 0 on a disk.
  uint64_t memory_bytes() const { return parts_.reserved.bytes(); }
  /// Returns the bytes of the disk that all users of the folder take at most, as far as is known; or of memory.
  absl::StatusOr<uint64_t> disk_bytes() { return parts_.usage.bytes(); }
  KeepCounts counts() const;
  /// All users of the folder may take so much of the disk, by the size and by the space that others leave; 0 if the
  /// system does not tell. In memory, the size.
  virtual uint64_t capacity_bytes() { return parts_.size_bytes; }

  /// Callers may let these threads wait for the disk: a store's callbacks must not wait for it.
  ThreadPool& readers() { return *readers_; }
  /// Returns those who share what is read with this user of the cache: the tenant that the options name, or the
  /// principal of the store. One tenant does not get the ranges of another.
  std::string TenantOf(const std::string& principal) const;
  FetchClaims& claims() { return *parts_.claims; }

 protected:
  /// So many bytes may wait to be written.
  static constexpr uint64_t kMaxQueuedBytes = 64 << 20;

  /// A cache is made of these.
  struct Parts {
    std::string name;              // for messages
    uint64_t size_bytes = 0;       // of all files; 0: without a bound
    size_t most_files = SIZE_MAX;  // open at a time, and as many slabs
    uint64_t queued_bytes = 0;     // that may wait to be written
    DiskUsage usage;
    std::unique_ptr<FetchClaims> claims;
    std::string jobs_path;
    UniqueFd jobs;                   // of the writer's thread
    MemoryBudget* budget = nullptr;  // that what waits has to have a part of; null: on a disk
    Reservation reserved = {};
    std::string tenant = {};  // RangeCacheOptions::tenant
    int slab_bits = 0;        // small objects lie in 2^slab_bits slabs
  };
  explicit RangeCache(Parts parts);
  /// Returns how many slabs there should be in a cache of that size, as a power of two.
  static int SlabBitsFor(uint64_t capacity_bytes);
  static constexpr int kMostSlabBits = 7;  // all are open, of the files that a process may have open
  /// Ends the threads, which call the functions below: for destructors of derived classes.
  void Stop();

  /// Holds a part of what was given to Keep.
  struct Kept {
    const CacheIdentity& identity;
    const std::string& name;
    uint64_t object_bytes = 0;
    uint64_t offset = 0;
    ByteSpan bytes;
    UseHints hints;
  };
  using OpenedFile = absl::StatusOr<std::unique_ptr<CacheFile>>;
  /// Opens a file that is not open: CacheFile::Open.
  virtual OpenedFile OpenFile(const std::string& name);
  /// CacheFile::OpenOrMake.
  virtual OpenedFile OpenOrMakeFile(const Kept& kept, const CacheFile::First* first, bool* made) = 0;
  /// Calls its argument for the names of all files, in no order: of those that are open.
  virtual void ForEachName(CacheFileVisitor each);
  /// Returns the bytes that must go before `bytes` more may come, whatever the size.
  virtual uint64_t Lacking(uint64_t /*bytes*/) { return 0; }

  uint64_t limit() const { return parts_.size_bytes == 0 ? UINT64_MAX : parts_.size_bytes; }
  /// So many bytes of the files are free again. If this fails, the count stays too large, and is made again.
  void GiveBack(uint64_t bytes) { parts_.usage.GiveBack(bytes).IgnoreError(); }
  /// Removes what is beyond the bound, later.
  void ShrinkSoon();

 private:
  std::shared_ptr<CacheFile> FileOf(const std::string& name, bool is_wanted);
  std::shared_ptr<CacheFile> Find(const CacheIdentity& identity, const std::string& name);
  std::shared_ptr<CacheFile> Make(const Kept& kept, const CacheFile::First& first, bool* written, bool* no_room);
  void LetGo(std::shared_ptr<void> until);
  void WriteAll(const CacheIdentity& identity, uint64_t object_bytes, uint64_t offset, ByteSpan bytes,
                const PlannedRead& plan);
  void Write(const Kept& kept);
  static UseHints ReadWithoutPlan(const UseHints& of, ByteRange there);
  static UseHints ReadByPlan(const UseHints& of, const PlannedRead& plan, uint64_t next_use);
  // ---- Whole small objects, in slabs: range_cache_small.cc.
  std::shared_ptr<CacheFile> SlabOf(const CacheIdentity& identity, std::optional<SmallObject>* small);
  std::optional<uint64_t> ReadSmall(const CacheIdentity& identity, ByteRange range,
                                    std::span<const SpanChecksum> checksums, MutableByteSpan into);
  bool TouchSmall(const CacheIdentity& identity, const PlannedRead* plan, ByteRange range);
  bool WriteSmall(const Kept& kept, const SmallObject& small);
  absl::Status AddSmall(const Kept& kept, const SmallObject& small, uint64_t* lacking);
  absl::Status WritePart(const Kept& kept, ByteRange part, std::shared_ptr<CacheFile>& file);
  uint64_t Excess(uint64_t bytes);
  std::vector<JobClock> Jobs(uint32_t own);
  bool EnsureRoom(uint64_t bytes, RoomMaker::Incoming& incoming);
  void Shrink();
  void OnError(const absl::Status& status, bool reading);
  void OnBadFile(const std::string& name, const absl::Status& status);
  bool IsBad(const std::string& name);

  Parts parts_;
  MemoryBudget queued_;
  std::atomic<bool> reads_{true};
  std::atomic<bool> writes_{true};
  std::atomic<bool> warned_{false};
  std::atomic<uint64_t> written_bytes_{0};
  std::atomic<uint64_t> not_admitted_bytes_{0};
  std::atomic<uint64_t> dropped_bytes_{0};

  OpenFiles open_;
  std::mutex mutex_;
  std::set<std::string, std::less<>> bad_files_;  // that could not be opened or read: they are not used any more
  std::set<std::string, std::less<>> stores_;     // that this process reads

  RoomMaker room_;
  std::unique_ptr<ThreadPool> readers_;
  std::unique_ptr<ThreadPool> writer_;  // one thread: last, as its end waits for the writes
};

}  // namespace millrace
