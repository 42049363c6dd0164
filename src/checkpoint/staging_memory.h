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

  /// At least `bytes`, and what they hold is arbitrary.
  Buffer Take(uint64_t bytes);
  /// `buffer` may be empty, and need not come from Take.
  void GiveBack(Buffer buffer);
  /// Of what nobody uses.
  uint64_t kept_bytes() const;

 private:
  const uint64_t most_kept_;
  mutable std::mutex mutex_;
  uint64_t kept_ = 0;
  std::vector<Buffer> free_;  // those that were given back last are the last
};

}  // namespace millrace
