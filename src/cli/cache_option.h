#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cache/range_cache.h"
#include "cli/command_line.h"

namespace millrace::cli {

/// `--cache DIR|memory` and `--cache-size SIZE`, for commands that read samples.
struct CacheOption {
  std::string place;
  std::string size;

  /// `keeps` is the help of --cache: what is kept, and for what.
  Option AddTo(const Command& command, const std::string& keeps);
  /// nullopt without --cache; a usage error if the size makes no sense, or if a cache in memory has none.
  absl::StatusOr<std::optional<RangeCacheOptions>> Take() const;
};

/// Bytes of memory that the cache takes beside the loaders: 0 on a disk.
uint64_t CacheMemoryOf(const std::optional<RangeCacheOptions>& cache);

/// A usage error for `--cache memory`, with the reason, of a command whose cache is a folder.
absl::Status RefuseCacheInMemory(std::string_view place, std::string_view why);

}  // namespace millrace::cli
