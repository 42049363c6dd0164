#include "cli/cache_option.h"

#include <fmt/format.h>

#include <utility>

#include "cli/console.h"
#include "cli/usage.h"

namespace millrace::cli {

Option CacheOption::AddTo(const Command& command, const std::string& keeps) {
  const Option cache = command.Add("--cache", &place, keeps).Called("DIR|memory");
  command.Add("--cache-size", &size, "What the cache may take of the disk [all but 5 %], or of the memory")
      .Needs(cache);
  return cache;
}

absl::StatusOr<std::optional<DiskCacheOptions>> CacheOption::Take() const {
  if (place.empty()) return std::nullopt;
  DiskCacheOptions options{.folder = place};
  if (!size.empty()) {
    ASSIGN_OR_RETURN(options.size_bytes, TakeSize("--cache-size", size));
  } else if (options.in_memory()) {
    return UsageError("--cache memory needs --cache-size, such as --cache-size 4GiB");
  }
  return options;
}

uint64_t CacheMemoryOf(const std::optional<DiskCacheOptions>& cache) {
  return cache && cache->in_memory() ? DiskCache::MemoryFor(cache->size_bytes) : 0;
}

absl::StatusOr<std::shared_ptr<DiskCache>> OpenCache(const std::optional<DiskCacheOptions>& cache,
                                                     MemoryBudget& budget) {
  if (!cache) return std::shared_ptr<DiskCache>();
  if (!cache->in_memory()) return std::shared_ptr<DiskCache>(DiskCache::OpenOrWarn(*cache));
  ASSIGN_OR_RETURN(std::unique_ptr<DiskCache> opened, DiskCache::OpenInMemory(budget, cache->size_bytes));
  return std::shared_ptr<DiskCache>(std::move(opened));
}

absl::Status RefuseCacheInMemory(std::string_view place, std::string_view why) {
  if (place != DiskCacheOptions::kMemory) return absl::OkStatus();
  return UsageError("--cache memory: {}; name a folder (one that is called memory is ./memory)", why);
}

}  // namespace millrace::cli
