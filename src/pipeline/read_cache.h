#pragma once

#include <map>
#include <memory>
#include <optional>

#include "cache/cached_store.h"
#include "pipeline/source.h"

namespace millrace {

/// The way that a loader's reads take: through a cache on disk, or straight to the stores. Thread-safe.
class ReadCache {
 public:
  /// Without a cache, reads go to the stores of the source, which outlive it. Stores in memory are not cached: their
  /// ETags mean nothing to another process.
  ReadCache(const Source& source, std::shared_ptr<DiskCache> cache);

  ObjectStore& Through(ObjectStore& store) const;

  /// Of all stores; nullopt without a cache.
  std::optional<CacheReport> report() const;

 private:
  const std::shared_ptr<DiskCache> cache_;
  std::map<const ObjectStore*, std::unique_ptr<CachedStore>> stores_;  // complete after construction
};

}  // namespace millrace
