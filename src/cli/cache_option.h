#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cache/range_cache.h"
#include "cli/command_line.h"

namespace millrace::cli {

/// `--cache DIR|memory`, `--cache-size SIZE` and `--cache-tenant NAME`, for commands that read samples.
struct CacheOption {
  std::string place;
  std::string size;
  std::string tenant;

  /// `keeps` is the help of --cache: what is kept, and for what.
  Option AddTo(const Command& command, const std::string& keeps);
  /// Returns nullopt without --cache. It is a usage error if the size makes no sense, and if a cache in memory does not
  /// have a size.
  absl::StatusOr<std::optional<RangeCacheOptions>> Take() const;

  /// The same for a command whose cache is a folder. It is a usage error, with the reason, if it is in memory.
  absl::StatusOr<RangeCacheOptions> TakeFolder(std::string_view why_not_memory) const;
};

/// `--cache-tenant NAME` of a command whose option --cache is `cache`.
void AddCacheTenant(const Command& command, const Option& cache, std::string* tenant);
/// Returns bytes of memory that the cache takes beside the loaders: 0 on a disk.
uint64_t CacheMemoryOf(const std::optional<RangeCacheOptions>& cache);

}  // namespace millrace::cli
