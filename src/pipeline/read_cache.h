#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "cache/cached_store.h"
#include "pipeline/source.h"

namespace millrace {

/// Routes a loader's reads: through a cache, or straight to the stores. Thread-safe.
class ReadCache {
 public:
  /// Takes the cache. Without one, reads go to the stores of the source, which outlive it. Stores in memory are not
  /// cached: their ETags mean nothing to another process.
  ReadCache(const Source& source, std::shared_ptr<RangeCache> cache);

  /// True if reads use the times at which their bytes are used again.
  bool used() const { return !stores_.empty(); }

  /// Reads as ObjectStore::Get of that store of the source.
  void Get(ObjectStore& store, std::string key, MutableByteSpan into, GetOptions options,
           std::optional<PlannedRead> plan, GetCallback done) const;

  /// Returns the report on all stores; nullopt without a cache.
  std::optional<CacheReport> report() const;

 private:
  const std::shared_ptr<RangeCache> cache_;
  std::map<const ObjectStore*, std::unique_ptr<CachedStore>> stores_;  // complete after construction
};

}  // namespace millrace
