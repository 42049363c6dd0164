#include "cache/cached_store.h"

#include <fmt/format.h>

#include <utility>

#include "store/checks.h"

namespace millrace {

/// One Get, until its callback has run.
struct CachedStore::Read {
  CacheIdentity identity;
  MutableByteSpan into;
  GetOptions options;
  GetCallback done;
  bool keep = false;  // what the store answers
};

CachedStore::CachedStore(ObjectStore& below, DiskCache& cache, Wanted wanted)
    : StoreAround(below),
      cache_(cache),
      wanted_(wanted),
      store_name_(below.traits().identity + " " + below.traits().root) {
  traits_.keeps_versions = true;
}

CachedStore::~CachedStore() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return in_flight_ == 0; });
}

CacheReport CachedStore::report() const {
  return {.hit_bytes = hit_bytes_.load(std::memory_order_relaxed),
          .miss_bytes = miss_bytes_.load(std::memory_order_relaxed),
          .requests = requests_.load(std::memory_order_relaxed)};
}

void CachedStore::Begin() {
  const std::lock_guard lock(mutex_);
  ++in_flight_;
}

void CachedStore::Leave() {
  const std::lock_guard lock(mutex_);
  if (--in_flight_ == 0) idle_.notify_all();  // under the lock: the waiting destructor may free it right after
}

void CachedStore::Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) {
  Begin();
  auto read = std::make_shared<Read>(
      Read{{store_name_, std::move(key), options.if_match}, into, std::move(options), std::move(done)});
  // What makes no sense is for the store to refuse.
  const bool sane = CheckGet("", read->options, into.size()).ok();
  if (read->options.if_match.empty() || into.empty() || !sane) return AskStore(std::move(read));
  read->keep = true;
  if (read->options.progress != nullptr) read->options.progress->store(RequestPhase::kQueued);
  cache_.readers().Submit([this, read = std::move(read)]() mutable { TryCache(std::move(read)); });
}

// On a thread of the cache.
void CachedStore::TryCache(std::shared_ptr<Read> read) {
  const GetOptions& options = read->options;
  if (options.stop.stop_requested()) {
    return End(*read, absl::CancelledError(fmt::format("{}: reading was cancelled", Uri(read->identity.key))));
  }
  if (options.progress != nullptr) options.progress->store(RequestPhase::kBody);
  std::optional<uint64_t> object_bytes = cache_.Read(read->identity, options.range, options.checksums, read->into);
  if (!object_bytes && wanted_ == Wanted::kSpans && !options.checksums.empty()) object_bytes = ReadSpans(*read);
  if (!object_bytes) return AskStore(std::move(read));
  hit_bytes_.fetch_add(read->into.size(), std::memory_order_relaxed);
  if (options.progress != nullptr) options.progress->store(RequestPhase::kDone);
  End(*read, GetResult{options.if_match, *object_bytes});
}

std::optional<uint64_t> CachedStore::ReadSpans(Read& read) {
  std::optional<uint64_t> object_bytes;
  for (const SpanChecksum& span : read.options.checksums) {
    if (span.range.length == 0) continue;
    const MutableByteSpan into = read.into.subspan(span.range.offset - read.options.range.offset, span.range.length);
    object_bytes = cache_.Read(read.identity, span.range, {&span, 1}, into);
    if (!object_bytes) return std::nullopt;
  }
  return object_bytes;
}

void CachedStore::AskStore(std::shared_ptr<Read> read) {
  requests_.fetch_add(1, std::memory_order_relaxed);
  std::string key = read->identity.key;
  GetOptions options = read->options;
  const MutableByteSpan into = read->into;
  below_.Get(std::move(key), into, std::move(options),
             [this, read = std::move(read)](absl::StatusOr<GetResult> result) mutable {
               if (result.ok()) miss_bytes_.fetch_add(read->into.size(), std::memory_order_relaxed);
               const bool keep = read->keep && result.ok() && result->etag == read->options.if_match;
               if (!keep || !cache_.keeps()) return End(*read, std::move(result));
               // Copying takes longer than a thread of the store has to spare. The read may end, and the cache go,
               // while this thread is still handing it over: that counts, too.
               Begin();
               cache_.readers().Submit([this, read = std::move(read), result = *std::move(result)]() mutable {
                 cache_.Keep(read->identity, result.object_size, read->options.range.offset, read->into);
                 End(*read, std::move(result));
               });
               Leave();
             });
}

void CachedStore::End(Read& read, absl::StatusOr<GetResult> result) {
  std::move(read.done)(std::move(result));
  read.done = nullptr;
  Leave();
}

}  // namespace millrace
