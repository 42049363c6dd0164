#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/memory_budget.h"
#include "base/thread_pool.h"
#include "cache/cache_file.h"
#include "cache/disk_usage.h"

namespace millrace {

struct DiskCacheOptions {
  std::string folder;        // made if it does not exist
  uint64_t size_bytes = 0;   // that the cache takes of the disk at most; 0: as much as leaves the share below free
  double free_share = 0.05;  // of the file system, which the cache leaves free whatever its size
};

/// Ranges of objects on a local disk, in `FOLDER/millrace-cache-1`; nothing outside of that is touched. Several
/// processes may use one folder at a time, and share what is there and the bound.
///
/// What makes room (until the plan's next use decides): a file is removed if no process has it open and none has opened
/// it since this cache was opened, the one that was opened longest ago first. If that is not enough, new ranges are not
/// kept. So of a data set that is larger than the cache and is read again and again a fixed part stays, where removing
/// what was used longest ago would remove all of it before its next use.
///
/// A disk that is full, read-only or failing ends writing, or reading and writing, with one warning. Thread-safe.
class DiskCache {
 public:
  /// What the system says if the folder cannot be made or written to.
  static absl::StatusOr<std::unique_ptr<DiskCache>> Open(DiskCacheOptions options);
  /// The same; but if it cannot be opened, logs a warning that names it and returns null.
  static std::unique_ptr<DiskCache> OpenOrWarn(DiskCacheOptions options);
  /// Waits until what was given to Keep is written.
  ~DiskCache();
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  /// Reads a range, if all of it is there and sound; returns the size of the object. `checksums` as CacheFile::Read has
  /// them. Blocking.
  std::optional<uint64_t> Read(const CacheIdentity& identity, ByteRange range, std::span<const SpanChecksum> checksums,
                               MutableByteSpan into);

  /// Whether Keep would do anything.
  bool keeps() const { return writes_.load(std::memory_order_relaxed); }

  /// Copies the bytes and writes them later. Drops them if 64 MiB wait already, or if there is no room on the disk:
  /// the disk never holds up who reads.
  void Keep(const CacheIdentity& identity, uint64_t object_bytes, uint64_t offset, ByteSpan bytes);

  /// Waits until what was given to Keep before is written.
  void Flush();

  const std::string& folder() const { return folder_; }
  /// Bytes of the disk that all users of the folder take at most, as far as is known.
  absl::StatusOr<uint64_t> disk_bytes() { return usage_.bytes(); }

  /// Threads that callers may let wait for the disk: a store's callbacks must not.
  ThreadPool& readers() { return *readers_; }

 private:
  struct OpenFile {
    std::string name;
    std::shared_ptr<CacheFile> file;  // null: there is none yet
  };

  DiskCache(DiskCacheOptions options, std::string folder, DiskUsage usage);

  std::shared_ptr<CacheFile> Find(const CacheIdentity& identity, const std::string& name);
  std::shared_ptr<CacheFile> FindOrMake(const CacheIdentity& identity, const std::string& name, uint64_t object_bytes);
  void Remember(const std::string& name, std::shared_ptr<CacheFile> file);
  void Write(const CacheIdentity& identity, uint64_t object_bytes, uint64_t offset, ByteSpan bytes);
  bool TakeRoom(uint64_t bytes);
  bool HasFreeSpace(uint64_t bytes) const;
  bool MakeRoom(uint64_t bytes);
  void OnDiskError(const absl::Status& status, bool reading);

  const DiskCacheOptions options_;
  const std::string folder_;
  const int64_t opened_ns_;  // by the file system's clock
  const size_t most_files_;  // open at a time
  DiskUsage usage_;
  MemoryBudget queued_;
  std::atomic<bool> reads_{true};
  std::atomic<bool> writes_{true};
  std::atomic<bool> warned_{false};

  std::mutex mutex_;
  std::list<OpenFile> files_;  // the last used first
  std::map<std::string, std::list<OpenFile>::iterator, std::less<>> by_name_;
  std::mutex room_mutex_;  // of MakeRoom
  int64_t looked_ms_ = 0;  // for something to remove, in vain

  std::unique_ptr<ThreadPool> readers_;
  std::unique_ptr<ThreadPool> writer_;  // one thread: last, as its end waits for the writes
};

}  // namespace millrace
