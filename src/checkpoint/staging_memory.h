#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "base/buffer.h"

namespace millrace {

/// Provides memory for the pieces of shards that are copied together before they are written. It is kept for the pieces
/// to come, and for the next save: the first touch of memory costs more than what is done with it. Thread-safe.
class StagingMemory {
 public:
  /// Keeps so many bytes that nobody uses, at most.
  explicit StagingMemory(uint64_t most_kept) : most_kept_(most_kept) {}

  /// Returns at least `bytes` with arbitrary contents. If memory must be made for them, some kept memory is freed. The
  /// bound holds for the sum of the new memory, the kept memory, and the `in_use` bytes that the caller has taken.
  Buffer Take(uint64_t bytes, uint64_t in_use = 0);
  /// `buffer` may be empty, and need not come from Take.
  void GiveBack(Buffer buffer);
  /// Returns the number of bytes that nobody uses.
  uint64_t kept_bytes() const;

 private:
  /// Drops memory until there are no more than `most` bytes. Called under the lock; the caller frees the dropped memory
  /// outside it.
  void DropOldest(uint64_t most, std::vector<Buffer>& dropped);

  const uint64_t most_kept_;
  mutable std::mutex mutex_;
  uint64_t kept_ = 0;
  std::vector<Buffer> free_;  // those that were given back last are the last
};

}  // namespace millrace
