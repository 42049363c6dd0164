#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/long_task.h"
#include "base/status.h"
#include "cache/cache_format.h"
#include "cache/eviction.h"

/// These functions look at a cache, check it and empty it, while others use it or not. `folder` is the one that users
/// name, and has a cache: else NotFound. Blocking; Cancelled soon after `stop` is requested.

namespace millrace {

/// Describes what is kept of one version of an object.
struct CachedObject {
  CacheIdentity identity;
  uint64_t object_bytes = 0;
  uint64_t cached_bytes = 0;
  uint64_t ranges = 0;
  uint64_t disk_bytes = 0;
  /// Returns the URI of the object.
  std::string uri() const;
};

using CachedObjectVisitor = std::function<absl::Status(const CachedObject&)>;
/// Visits all objects, in no order. Files that are not sound are left out.
absl::Status ForEachCachedObject(const std::string& folder, const std::stop_token& stop,
                                 const CachedObjectVisitor& each);

struct CacheSummary {
  uint64_t objects = 0;
  uint64_t unsound_files = 0;  // damaged, or of another version
  uint64_t ranges = 0;
  uint64_t cached_bytes = 0;
  uint64_t disk_bytes = 0;
  uint64_t pinned_bytes = 0;  // of the cached ones, in no job
  uint64_t file_system_bytes = 0;
  uint64_t free_bytes = 0;
  struct Job {
    uint32_t job = 0;  // 0: all that are not at work any more
    bool alive = false;
    JobClock clock;
    uint64_t ranges = 0;
    uint64_t bytes = 0;
  };
  std::vector<Job> jobs;
};
absl::StatusOr<CacheSummary> SummarizeCache(const std::string& folder, const std::stop_token& stop);

struct CacheCheck {
  uint64_t objects = 0;
  uint64_t ranges = 0;
  uint64_t bytes = 0;
  uint64_t damaged_ranges = 0;  // removed
  uint64_t unsound_files = 0;   // removed, unless somebody has them open
};
/// Reads all ranges and compares them with their checksums.
absl::StatusOr<CacheCheck> VerifyCache(const std::string& folder, const LongTask& task);

struct CacheClearing {
  uint64_t objects = 0;  // of which something was removed
  uint64_t disk_bytes = 0;
};
/// Removes what is kept of objects whose URI begins with `prefix`, or of all, and what is not sound; and nothing else.
/// Users of the cache continue, and read from the store.
absl::StatusOr<CacheClearing> ClearCache(const std::string& folder, const std::string& prefix, const LongTask& task);

}  // namespace millrace
