#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
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
#include "cache/cache_memory.h"
#include "cache/disk_usage.h"
#include "cache/fetch_claims.h"
#include "cache/job_table.h"
#include "cache/planned_read.h"
#include "cache/room_maker.h"
#include "cache/shared_file.h"

namespace millrace {

struct DiskCacheOptions {
  /// What users say in place of a folder, to keep ranges in memory. (A folder of that name is "./memory".)
  static constexpr std::string_view kMemory = "memory";
  bool in_memory() const { return folder == kMemory; }

  std::string folder;        // made if it does not exist
  uint64_t size_bytes = 0;   // that the cache takes of the disk at most; 0: as much as leaves the share below free
  double free_share = 0.05;  // of the file system, which the cache leaves free whatever its size
  /// How long it waits for a lock that another process has on the cache: then it is not used, or takes nothing new.
  std::chrono::milliseconds lock_patience = kLockPatience;
};

/// What became of ranges that were read from the store.
struct KeepCounts {
  uint64_t written_bytes = 0;
  uint64_t not_admitted_bytes = 0;  // they would have been removed before their use
  uint64_t dropped_bytes = 0;       // the disk did not keep up, or failed
  uint64_t waiting_bytes = 0;       // for the disk, at this moment
};

/// Ranges of objects on a local disk, in `FOLDER/millrace-cache-1`; nothing outside of that is touched. Several
/// processes may use one folder at a time, and share what is there and the bound.
///
/// If there is no room, EvictionPolicy decides what goes: of a plan, what is needed latest.
///
/// A disk that is full, read-only or failing ends writing, or reading and writing, with one warning. So do files of
/// another user, and a process that keeps others waiting for a lock. Thread-safe.
///
/// Or the same in memory, for the readers of this process: bounded and emptied alike, and gone with the DiskCache.
class DiskCache {
 public:
  /// What the system says if the folder cannot be made or written to.
  static absl::StatusOr<std::unique_ptr<DiskCache>> Open(DiskCacheOptions options);
  /// The same; but if it cannot be opened, logs a warning that names it and returns null.
  static std::unique_ptr<DiskCache> OpenOrWarn(DiskCacheOptions options);
  /// In memory; MemoryFor(size_bytes) of the budget are reserved, which outlives the cache. InvalidArgument for a size
  /// of 0, and if the machine's pages are larger than 4 KiB; ResourceExhausted if the budget has less.
  static absl::StatusOr<std::unique_ptr<DiskCache>> OpenInMemory(MemoryBudget& budget, uint64_t size_bytes);
  /// What a cache in memory takes of a budget: its size, and what may wait to be written.
  static uint64_t MemoryFor(uint64_t size_bytes);
  /// Waits until what was given to Keep is written.
  ~DiskCache();
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  /// A reader of objects of a store, which begins at `clock`: as long as its entry lives, its job's ranges are not
  /// taken for forgotten ones. Null if that cannot be told to others; then it reads all the same.
  std::unique_ptr<JobEntry> Join(const std::string& store, uint32_t job, uint64_t period, uint64_t clock = 0);

  /// Reads a range, if all of it is there and sound; returns the size of the object. `checksums` as CacheFile::Read has
  /// them. Blocking.
  std::optional<uint64_t> Read(const CacheIdentity& identity, ByteRange range, std::span<const SpanChecksum> checksums,
                               MutableByteSpan into, ReadBytes bytes = ReadBytes::kAll);
  /// Whether there is a file of that version of the object.
  bool Has(const CacheIdentity& identity) { return Find(identity, cache_format::FileName(identity)) != nullptr; }
  /// A read through the cache has found these ranges: notes when they are read next.
  void Touch(const CacheIdentity& identity, ByteRange range, const PlannedRead* plan);

  /// Whether Keep would do anything.
  bool keeps() const { return writes_.load(std::memory_order_relaxed); }

  /// Copies the bytes and writes them later: those of each span of the plan for itself, or all as one. Drops them if
  /// 64 MiB would wait then, unless they are the only ones, or if there is no room on the disk: the disk never holds up
  /// who reads. In memory, the budget must also have what is longer than that. `until` is let go when they are written
  /// or dropped, by a thread of the cache: that may take a while.
  void Keep(const CacheIdentity& identity, uint64_t object_bytes, uint64_t offset, ByteSpan bytes,
            const PlannedRead* plan = nullptr, std::shared_ptr<void> until = nullptr);

  /// Waits until what was given to Keep before is written.
  void Flush();

  const std::string& folder() const { return folder_; }
  /// Reserved of the process's budget; 0 on a disk.
  uint64_t memory_bytes() const { return reserved_.bytes(); }
  /// Bytes of the disk that all users of the folder take at most, as far as is known.
  absl::StatusOr<uint64_t> disk_bytes() { return usage_.bytes(); }
  KeepCounts counts() const;
  /// What all users of the folder may take of the disk, by the size and by the space that others leave; 0 if the system
  /// does not tell.
  uint64_t capacity_bytes();

  /// Threads that callers may let wait for the disk: a store's callbacks must not.
  ThreadPool& readers() { return *readers_; }
  FetchClaims& claims() { return *claims_; }

  /// The folder of a cache in a folder that users name.
  static std::string FolderIn(const std::string& folder) { return folder + "/millrace-cache-1"; }

 private:
  struct OpenFile {
    std::string name;
    std::shared_ptr<CacheFile> file;
    size_t spans = 0;  // when it was opened
  };
  /// A part of what was given to Keep.
  struct Kept {
    const CacheIdentity& identity;
    const std::string& name;
    uint64_t object_bytes = 0;
    uint64_t offset = 0;
    ByteSpan bytes;
    UseHints hints;
  };

  /// What a cache is made of, on a disk or in memory.
  struct Parts {
    std::string folder;
    std::string jobs_path;
    DiskUsage usage;
    UniqueFd jobs;
    std::unique_ptr<FetchClaims> claims;
    uint64_t queued_bytes = 0;
    std::shared_ptr<CacheMemory> memory = nullptr;
    Reservation reserved = {};
    MemoryBudget* budget = nullptr;
  };
  DiskCache(DiskCacheOptions options, Parts parts);

  std::shared_ptr<CacheFile> Lookup(const std::string& name);
  std::shared_ptr<CacheFile> Find(const CacheIdentity& identity, const std::string& name);
  std::shared_ptr<CacheFile> OpenByName(const std::string& name);
  void RemoveUnsound(const std::string& path);
  void ForEachName(absl::FunctionRef<void(const std::string& name)> each);
  absl::StatusOr<std::unique_ptr<CacheFile>> MakeFile(const Kept& kept, const CacheFile::First* first, bool* is_new);
  std::shared_ptr<CacheFile> Make(const Kept& kept, const CacheFile::First& first, bool* written, bool* no_room);
  void Remember(const std::string& name, std::shared_ptr<CacheFile> file);
  void Forget(const std::string& name, const std::shared_ptr<CacheFile>& file);
  void LetGo(std::shared_ptr<void> until);
  void WriteAll(const CacheIdentity& identity, uint64_t object_bytes, uint64_t offset, ByteSpan bytes,
                const PlannedRead& plan);
  void Write(const Kept& kept);
  absl::Status WritePart(const Kept& kept, ByteRange part, std::shared_ptr<CacheFile>& file);
  uint64_t limit() const { return options_.size_bytes == 0 ? UINT64_MAX : options_.size_bytes; }
  uint64_t Excess(uint64_t bytes);
  std::vector<JobClock> Jobs(uint32_t own);
  bool EnsureRoom(uint64_t bytes, RoomMaker::Incoming& incoming);
  void Shrink();
  void OnDiskError(const absl::Status& status, bool reading);

  const DiskCacheOptions options_;
  const std::string folder_;
  const std::string jobs_path_;
  const size_t most_files_;  // open at a time
  const Reservation reserved_;
  const std::shared_ptr<CacheMemory> memory_;  // null: on a disk
  DiskUsage usage_;
  UniqueFd jobs_;  // of the writer's thread
  const std::unique_ptr<FetchClaims> claims_;
  MemoryBudget queued_;
  MemoryBudget* const budget_;  // of the process; null: on a disk
  std::atomic<bool> reads_{true};
  std::atomic<bool> writes_{true};
  std::atomic<bool> warned_{false};
  std::atomic<uint64_t> written_bytes_{0};
  std::atomic<uint64_t> not_admitted_bytes_{0};
  std::atomic<uint64_t> dropped_bytes_{0};

  std::mutex mutex_;
  std::list<OpenFile> files_;  // the last used first
  std::map<std::string, std::list<OpenFile>::iterator, std::less<>> by_name_;
  size_t open_spans_ = 0;
  std::set<std::string, std::less<>> stores_;  // that this process reads

  RoomMaker room_;
  std::unique_ptr<ThreadPool> readers_;
  std::unique_ptr<ThreadPool> writer_;  // one thread: last, as its end waits for the writes
};

}  // namespace millrace
