#include "cli/cache_option.h"

#include <fmt/format.h>

#include "cache/memory_cache.h"
#include "cli/console.h"
#include "cli/usage.h"

namespace millrace::cli {

Option CacheOption::AddTo(const Command& command, const std::string& keeps) {
  const Option cache = command.Add("--cache DIR|memory", &place, keeps);
  command.Add("--cache-size", &size, "Max size of the cache on disk [all but 5 %], or in memory").Needs(cache);
  AddCacheTenant(command, cache, &tenant);
  return cache;
}

absl::StatusOr<std::optional<RangeCacheOptions>> CacheOption::Take() const {
  // A value that is wrong is an error also where `mount -o` gives it without a cache.
  RETURN_IF_ERROR(AsUsage(Annotate(CheckCacheTenant(tenant), "--cache-tenant")));
  RangeCacheOptions options{.folder = place, .tenant = tenant};
  if (!size.empty()) {
    ASSIGN_OR_RETURN(options.size_bytes, TakeSize("--cache-size", size));
  }
  if (place.empty()) return std::nullopt;
  if (size.empty() && options.in_memory()) {
    return UsageError("--cache memory needs --cache-size, such as --cache-size 4GiB");
  }
  return options;
}

absl::StatusOr<RangeCacheOptions> CacheOption::TakeFolder(std::string_view why_not_memory) const {
  if (place == RangeCacheOptions::kMemory) {
    return UsageError("--cache memory: {}; name a folder (one that is called memory is ./memory)", why_not_memory);
  }
  ASSIGN_OR_RETURN(const std::optional<RangeCacheOptions> options, Take());
  return options.value_or(RangeCacheOptions());
}

void AddCacheTenant(const Command& command, const Option& cache, std::string* tenant) {
  command
      .Add("--cache-tenant NAME", tenant,
           "Share cached bytes with programs that give the same name [those with the same credentials]")
      .Needs(cache);
}

uint64_t CacheMemoryOf(const std::optional<RangeCacheOptions>& cache) {
  return cache && cache->in_memory() ? MemoryCache::MemoryFor(cache->size_bytes) : 0;
}

}  // namespace millrace::cli
