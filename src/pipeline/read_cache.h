#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "cache/cached_store.h"
#include "pipeline/source.h"

namespace millrace {

/// The way that a loader's reads take: through a cache, or straight to the stores. Thread-safe.
class ReadCache {
 public:
  /// Without a cache, reads go to the stores of the source, which outlive it. Stores in memory are not cached: their
  /// ETags mean nothing to another process.
  ReadCache(const Source& source, std::shared_ptr<RangeCache> cache);

  /// Whether reads want to know when they come again.
  bool used() const { return !stores_.empty(); }

  /// As ObjectStore::Get of that store of the source.
  void Get(ObjectStore& store, std::string key, MutableByteSpan into, GetOptions options,
           std::optional<PlannedRead> plan, GetCallback done) const;

  /// Of all stores; nullopt without a cache.
  std::optional<CacheReport> report() const;

 private:
  const std::shared_ptr<RangeCache> cache_;
  std::map<const ObjectStore*, std::unique_ptr<CachedStore>> stores_;  // complete after construction
};

}  // namespace millrace
