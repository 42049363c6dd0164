#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "base/buffer.h"

namespace millrace {

/// Memory for the pieces of shards that are copied together before they are written. It is kept for the pieces to come,
/// and for the next save: the first touch of memory costs more than what is done with it. Thread-safe.
class StagingMemory {
 public:
  /// Keeps so many bytes that nobody uses, at most.
  explicit StagingMemory(uint64_t most_kept) : most_kept_(most_kept) {}

  /// At least `bytes`, and what they hold is arbitrary. If memory must be made for them, only so much is kept that with
  /// it, and with the `in_use` bytes that the caller has taken, there is no more than may be kept.
  Buffer Take(uint64_t bytes, uint64_t in_use = 0);
  /// `buffer` may be empty, and need not come from Take.
  void GiveBack(Buffer buffer);
  /// Of what nobody uses.
  uint64_t kept_bytes() const;

 private:
  /// Until there are no more than `most` bytes. Under the lock; what is dropped is to be freed outside it.
  void DropOldest(uint64_t most, std::vector<Buffer>& dropped);

  const uint64_t most_kept_;
  mutable std::mutex mutex_;
  uint64_t kept_ = 0;
  std::vector<Buffer> free_;  // those that were given back last are the last
};

}  // namespace millrace
