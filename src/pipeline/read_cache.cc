#include "pipeline/read_cache.h"

#include <utility>

namespace millrace {

ReadCache::ReadCache(const Source& source, std::shared_ptr<RangeCache> cache) : cache_(std::move(cache)) {
  if (cache_ == nullptr) return;
  for (const Subset& part : source.parts()) {
    ObjectStore& store = part.dataset->store();
    if (store.traits().is_memory()) continue;
    std::unique_ptr<CachedStore>& cached = stores_[&store];
    // For samples, every wanted span has a checksum, if they were read; for rows of tokens, not every one has.
    const bool spans = source.tokens() == nullptr && part.index().samples_without_crc() == 0;
    const auto wanted = spans ? CachedStore::Wanted::kSpans : CachedStore::Wanted::kAll;
    if (cached == nullptr) cached = std::make_unique<CachedStore>(store, *cache_, wanted);
  }
}

void ReadCache::Get(ObjectStore& store, std::string key, MutableByteSpan into, GetOptions options,
                    std::optional<PlannedRead> plan, GetCallback done) const {
  const auto found = stores_.find(&store);
  if (found == stores_.end()) return store.Get(std::move(key), into, std::move(options), std::move(done));
  found->second->GetPlanned(std::move(key), into, std::move(options), std::move(plan), std::move(done));
}

std::optional<CacheReport> ReadCache::report() const {
  if (cache_ == nullptr) return std::nullopt;
  CacheReport sum;
  for (const auto& [below, store] : stores_) {
    const CacheReport one = store->report();
    sum.hit_bytes += one.hit_bytes;
    sum.miss_bytes += one.miss_bytes;
    sum.requests += one.requests;
  }
  sum.memory_bytes = cache_->memory_bytes();
  sum.kept = cache_->counts();
  return sum;
}

}  // namespace millrace
