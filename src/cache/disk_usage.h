#pragma once

#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"
#include "cache/shared_file.h"

namespace millrace {

/// This is the unit in which stat() counts the disk space of a file.
inline constexpr uint64_t kStatBlockBytes = 512;
/// So much is counted for each file beside its blocks: for what the file system may come to note of its holes.
inline constexpr uint64_t kFileMarginBytes = 4096;
/// Returns the same for each range of a slab, of so many bytes: its blocks come and go by themselves, and the file
/// system notes where they are. A short range shares nearly all of them with its neighbors.
constexpr uint64_t SlabMarginBytes(uint64_t length) {
  return length < 6144 ? 16 : 96;
}
/// Returns the bytes of the disk that a file of the cache takes, with what is counted beside its blocks. Reads its head
/// and records if it may be a slab.
uint64_t CountedBytes(const std::string& path, const struct stat& info);

/// Counts the bytes of the disk that the files of a cache take, for all processes that use it: in a file, as a number.
/// It is never too small but for what a user does by hand, and too large only until a process is alone with the cache
/// and counts again. If the folder is removed meanwhile, it is made and counted again. For a cache in memory it is a
/// number of this process. Thread-safe; blocking: up to `patience` for another process that holds a lock. If that has
/// been in vain, all calls fail from then on.
class DiskUsage {
 public:
  /// Holds the folder's lock, shared with other users of the cache. A process that finds itself alone counts. Alone,
  /// it also raises the number of slabs that users have agreed on to 2^`least_slab_bits`.
  static absl::StatusOr<DiskUsage> Open(const std::string& folder, std::chrono::milliseconds patience = kLockPatience,
                                        std::optional<int> least_slab_bits = std::nullopt);
  static DiskUsage OfMemory() { return {"", UniqueFd(-1), UniqueFd(-1), kLockPatience}; }
  DiskUsage(DiskUsage&& other) noexcept
      : folder_(std::move(other.folder_)),
        lock_(std::move(other.lock_)),
        number_(std::move(other.number_)),
        patience_(other.patience_),
        bytes_(other.bytes_),
        slabs_(other.slabs_) {}

  /// Takes bytes, unless there would be more than `limit`: then false, and nothing is taken.
  absl::StatusOr<bool> Take(uint64_t bytes, uint64_t limit);
  absl::Status GiveBack(uint64_t bytes);
  absl::StatusOr<uint64_t> bytes();
  /// Returns how many slabs all users of the folder have, as a power of two: what the first one wanted, or one that was
  /// alone.
  absl::StatusOr<int> AgreeOnSlabs(int wanted_bits, int most_bits);

 private:
  DiskUsage(std::string folder, UniqueFd lock, UniqueFd number, std::chrono::milliseconds patience)
      : folder_(std::move(folder)), lock_(std::move(lock)), number_(std::move(number)), patience_(patience) {}
  absl::Status LockNumber();  // mutex_ held
  absl::StatusOr<DiskUsage> MakeAgain() const;
  absl::StatusOr<uint64_t> Change(uint64_t add, uint64_t remove, uint64_t limit, bool* done);

  std::string folder_;
  UniqueFd lock_;    // of the folder: who uses it
  UniqueFd number_;  // locked for each change; -1: bytes_ is the number
  std::chrono::milliseconds patience_;
  absl::Status failed_;  // another process held the number for too long
  uint64_t bytes_ = 0;
  uint64_t slabs_ = 0;  // one more than the bits of their number; 0: not agreed on
  std::mutex mutex_;
};

}  // namespace millrace
