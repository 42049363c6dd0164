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
};

/// `--cache-tenant NAME` of a command whose option --cache is `cache`.
void AddCacheTenant(const Command& command, const Option& cache, std::string* tenant);
/// A usage error for a name that is too long or is no printable text.
absl::StatusOr<std::string> TakeCacheTenant(const std::string& tenant);

/// Returns bytes of memory that the cache takes beside the loaders: 0 on a disk.
uint64_t CacheMemoryOf(const std::optional<RangeCacheOptions>& cache);

/// Returns a usage error for `--cache memory`, with the reason, of a command whose cache is a folder.
absl::Status RefuseCacheInMemory(std::string_view place, std::string_view why);

}  // namespace millrace::cli
