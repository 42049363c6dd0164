#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cache/disk_cache.h"
#include "cli/command_line.h"

namespace millrace::cli {

/// `--cache DIR|memory` and `--cache-size SIZE`, for commands that read samples.
struct CacheOption {
  std::string place;
  std::string size;

  /// `keeps` is the help of --cache: what is kept, and for what.
  Option AddTo(const Command& command, const std::string& keeps);
  /// nullopt without --cache; a usage error if the size makes no sense, or if a cache in memory has none.
  absl::StatusOr<std::optional<DiskCacheOptions>> Take() const;
};

/// Bytes of memory that the cache takes beside the loaders: 0 on a disk.
uint64_t CacheMemoryOf(const std::optional<DiskCacheOptions>& cache);

/// Null if there is none, or, with a warning, if its folder cannot be used. Of a cache in memory, `budget` outlives it,
/// and errors are those of DiskCache::OpenInMemory.
absl::StatusOr<std::shared_ptr<DiskCache>> OpenCache(const std::optional<DiskCacheOptions>& cache,
                                                     MemoryBudget& budget);

/// A usage error for `--cache memory`, with the reason, of a command whose cache is a folder.
absl::Status RefuseCacheInMemory(std::string_view place, std::string_view why);

}  // namespace millrace::cli
