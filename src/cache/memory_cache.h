#pragma once

#include <cstdint>
#include <memory>

#include "cache/range_cache.h"

namespace millrace {

/// Keeps ranges of objects in memory, for the readers of this process. They are kept as DiskCache keeps them on a disk,
/// and are gone with the MemoryCache. Each object is a stretch of one file without a name (memfd), which takes memory
/// only for the bytes that are written. The system frees it with the process, however that ends. Thread-safe.
class MemoryCache final : public RangeCache {
 public:
  /// MemoryFor(size_bytes) of the budget are reserved, which outlives the cache. InvalidArgument for a size of 0, and
  /// if the machine's pages are larger than 4 KiB; ResourceExhausted if the budget has less.
  static absl::StatusOr<std::unique_ptr<MemoryCache>> Open(MemoryBudget& budget, uint64_t size_bytes,
                                                           std::string tenant = {});
  /// Returns the bytes that it takes of a budget: its size, and those that may wait to be written.
  static uint64_t MemoryFor(uint64_t size_bytes);
  /// Frees the memory, also if a fork of the process still has the file open.
  ~MemoryCache() override;

 private:
  MemoryCache(Parts parts, UniqueFd memory) : RangeCache(std::move(parts)), memory_(std::move(memory)) {}
  uint64_t StretchFor(const Kept& kept);
  OpenedFile OpenOrMakeFile(const Kept& kept, const CacheFile::First* first, bool* made) override;

  const UniqueFd memory_;
  uint64_t end_ = 0;  // of the stretches, which are never given out again
};

}  // namespace millrace
