#include "cache/cached_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "net/metrics_text.h"
#include "store/checks.h"

namespace millrace {

namespace {

using SteadyClock = std::chrono::steady_clock;

// A read waits so long for what another read fetches: then it is fetched once more.
constexpr std::chrono::seconds kClaimPatience{20};
// So little is copied sooner than another thread is woken for it.
constexpr size_t kMaxCopiedHere = size_t{64} << 10;

}  // namespace

void CollectCache(const CacheReport& cache, std::string_view data, MetricsText* text) {
  text->Counter("millrace_cache_hit_bytes_total", "Bytes that came from the cache, on a disk or in memory.",
                {{"data", data}}, static_cast<double>(cache.hit_bytes));
  text->Counter("millrace_cache_miss_bytes_total", "Bytes that the cache did not have, and the store was asked for.",
                {{"data", data}}, static_cast<double>(cache.miss_bytes));
  text->Counter("millrace_cache_store_requests_total", "Requests for what the cache did not have.", {{"data", data}},
                static_cast<double>(cache.requests));
}

/// Holds a range that the store is asked for, and the answer.
struct CachedStore::Part {
  ByteRange range;
  std::vector<SpanChecksum> checksums;
  std::vector<ByteRange> damaged;
  absl::StatusOr<GetResult> result = absl::CancelledError();
};

/// Holds one Get, until its callback has run.
struct CachedStore::Read {
  CacheIdentity identity;
  MutableByteSpan into;
  GetOptions options;
  GetCallback done;
  std::optional<PlannedRead> plan;
  bool cached = false;  // it may come from the cache, and what the store answers is kept
  uint64_t object_bytes = 0;
  std::vector<Part> parts;  // to ask the store for; a single one may be all of the range
  std::vector<std::shared_ptr<FetchClaims::Claim>> claims;
  std::optional<SteadyClock::time_point> claims_until;
  std::atomic<size_t> left{0};

  bool whole() const { return parts.size() == 1 && parts.front().range == options.range; }
  bool Keeps(const Part& part) const { return cached && part.result.ok() && part.result->etag == options.if_match; }
  const PlannedRead* planned() const { return plan ? &*plan : nullptr; }
  MutableByteSpan PlaceOf(ByteRange range) const {
    return into.subspan(range.offset - options.range.offset, range.length);
  }
};

CachedStore::CachedStore(ObjectStore& below, RangeCache& cache, Wanted wanted)
    : StoreAround(below),
      cache_(cache),
      wanted_(wanted),
      store_name_(below.traits().identity + " " + below.traits().root),
      tenant_(cache.TenantOf(below.traits().principal)) {
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

// Reads begin in the order of the plan, so that the earliest in flight is the earliest that is still to come.
void CachedStore::Begin(const Read* read) {
  const std::lock_guard lock(mutex_);
  ++in_flight_;
  if (read == nullptr || !read->plan) return;
  uses_.insert(read->plan->use);
  last_use_ = read->plan->use;
}

void CachedStore::Leave(const Read* read) {
  const std::lock_guard lock(mutex_);
  if (read != nullptr && read->plan) {
    uses_.erase(uses_.find(read->plan->use));
    if (entry_ != nullptr) entry_->SetClock(uses_.empty() ? last_use_ : *uses_.begin());
  }
  if (--in_flight_ == 0) idle_.notify_all();  // under the lock: the waiting destructor may free it right after
}

void CachedStore::Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) {
  GetPlanned(std::move(key), into, std::move(options), std::nullopt, std::move(done));
}

void CachedStore::GetPlanned(std::string key, MutableByteSpan into, GetOptions options, std::optional<PlannedRead> plan,
                             GetCallback done) {
  auto read = std::make_shared<Read>();
  read->identity = {store_name_, std::move(key), options.if_match, tenant_};
  read->into = into;
  read->options = std::move(options);
  read->plan = std::move(plan);
  read->done = std::move(done);
  Start(std::move(read));
}

void CachedStore::Start(std::shared_ptr<Read> read) {
  Begin(read.get());
  // The store refuses a range that makes no sense.
  const bool sane = CheckGet("", read->options, read->into.size()).ok();
  read->cached = !read->options.if_match.empty() && !read->into.empty() && sane;
  if (!read->cached) {
    read->parts.push_back({.range = read->options.range});
    return AskStore(std::move(read));
  }
  if (read->options.progress != nullptr) read->options.progress->store(RequestPhase::kQueued);
  cache_.readers().Submit([this, read = std::move(read)]() mutable { TryCache(std::move(read)); });
}

void CachedStore::Join(const Read& read) {
  std::call_once(joined_, [&] {
    std::unique_ptr<JobEntry> entry = read.plan
                                          ? cache_.Join(store_name_, read.plan->job, read.plan->period, read.plan->use)
                                          : cache_.Join(store_name_, UseHints::kUnplanned, 1);
    const std::lock_guard lock(mutex_);
    entry_ = std::move(entry);
  });
}

// Runs on a thread of the cache.
void CachedStore::TryCache(std::shared_ptr<Read> read) {
  const GetOptions& options = read->options;
  if (options.stop.stop_requested()) {
    return End(*read, absl::CancelledError(fmt::format("{}: reading was cancelled", Uri(read->identity.key))));
  }
  Join(*read);
  if (options.progress != nullptr) options.progress->store(RequestPhase::kBody);
  read->parts.clear();
  uint64_t hit_bytes = 0;
  if (ReadAll(*read)) {
    hit_bytes = read->into.size();
  } else if (wanted_ == Wanted::kSpans && !options.checksums.empty() && !options.whole && !options.part) {
    ReadSpans(*read, &hit_bytes);
  } else {
    read->parts.push_back({.range = options.range});
  }
  const bool unclaimed = read->claims.empty();
  if (!read->parts.empty() && !Claim(read)) return;  // it comes again
  // Another one may have fetched it between the look and the claim.
  if (unclaimed && !read->claims.empty()) return TryCache(std::move(read));
  hit_bytes_.fetch_add(hit_bytes, std::memory_order_relaxed);
  if (!read->parts.empty()) return AskStore(std::move(read));
  if (options.progress != nullptr) options.progress->store(RequestPhase::kDone);
  End(*read, GetResult{options.if_match, read->object_bytes});
}

bool CachedStore::ReadAll(Read& read) {
  const ReadBytes wanted = wanted_ == Wanted::kSpans ? ReadBytes::kChecked : ReadBytes::kAll;
  const std::optional<uint64_t> bytes =
      cache_.Read(read.identity, read.options.range, read.options.checksums, read.into, wanted);
  if (!bytes) return false;
  read.object_bytes = *bytes;
  cache_.Touch(read.identity, read.options.range, read.planned());
  return true;
}

// Neighbors that are missing make one part.
void CachedStore::ReadSpans(Read& read, uint64_t* hit_bytes) {
  const bool known = cache_.Has(read.identity);
  bool apart = true;
  for (const SpanChecksum& span : read.options.checksums) {
    if (span.range.length == 0) continue;
    std::optional<uint64_t> bytes;
    if (known) bytes = cache_.Read(read.identity, span.range, {&span, 1}, read.PlaceOf(span.range));
    if (bytes) {
      read.object_bytes = *bytes;
      *hit_bytes += span.range.length;
      cache_.Touch(read.identity, span.range, read.planned());
      apart = true;
      continue;
    }
    if (apart) read.parts.push_back({.range = {span.range.offset, 0}});
    apart = false;
    Part& part = read.parts.back();
    part.range.length = std::max(part.range.end(), span.range.end()) - part.range.offset;
    part.checksums.push_back(span);
  }
  if (*hit_bytes > 0 || read.parts.empty()) return;
  // Nothing is there: as it was asked for.
  read.parts.clear();
  read.parts.push_back({.range = read.options.range});
}

// False: others fetch some of it, and it tries again when they have ended.
bool CachedStore::Claim(const std::shared_ptr<Read>& read) {
  if (!cache_.keeps() || !read->claims.empty()) return true;
  const SteadyClock::time_point now = SteadyClock::now();
  if (!read->claims_until) read->claims_until = now + kClaimPatience;
  if (now >= *read->claims_until) return true;
  const auto take = [this, name = cache_format::FileName(read->identity), read] {
    for (const Part& part : read->parts) {
      std::shared_ptr<FetchClaims::Claim> claim = cache_.claims().Take(name, part.range);
      if (claim == nullptr) {
        read->claims.clear();
        return false;
      }
      read->claims.push_back(std::move(claim));
    }
    return true;
  };
  if (take()) return true;
  if (read->options.progress != nullptr) read->options.progress->store(RequestPhase::kFirstByte);
  cache_.claims().Wait([this, take, read] {
    const bool over = SteadyClock::now() >= *read->claims_until || read->options.stop.stop_requested();
    if (!take() && !over) return false;
    cache_.readers().Submit([this, read]() mutable { TryCache(std::move(read)); });
    return true;
  });
  return false;
}

void CachedStore::AskStore(std::shared_ptr<Read> read) {
  const size_t parts = read->parts.size();
  const bool whole = read->whole();
  requests_.fetch_add(parts, std::memory_order_relaxed);
  read->left.store(parts);
  for (size_t i = 0; i < parts; ++i) {
    Part& part = read->parts[i];
    GetOptions options = read->options;
    if (!whole) {
      options.range = part.range;
      options.checksums = part.checksums;
      options.damaged = &part.damaged;
    }
    const MutableByteSpan into = whole ? read->into : read->PlaceOf(part.range);
    below_.Get(read->identity.key, into, std::move(options), [this, read, i](absl::StatusOr<GetResult> result) mutable {
      Part& answered = read->parts[i];
      if (result.ok()) miss_bytes_.fetch_add(answered.range.length, std::memory_order_relaxed);
      answered.result = std::move(result);
      if (read->left.fetch_sub(1) == 1) OnAnswers(std::move(read));
    });
  }
}

namespace {

// Joins the answers for several parts into one. `damaged` gets what is damaged in them, in their order.
absl::StatusOr<GetResult> Joined(auto& parts, std::vector<ByteRange>* damaged) {
  absl::Status lost;
  for (auto& part : parts) {
    if (part.result.ok()) continue;
    if (!absl::IsDataLoss(part.result.status())) return part.result.status();
    if (lost.ok()) lost = part.result.status();
    if (part.damaged.empty()) {
      for (const SpanChecksum& span : part.checksums) part.damaged.push_back(span.range);
    }
    if (damaged != nullptr) damaged->insert(damaged->end(), part.damaged.begin(), part.damaged.end());
  }
  if (!lost.ok()) return lost;
  return parts.front().result;
}

}  // namespace

void CachedStore::OnAnswers(std::shared_ptr<Read> read) {
  const bool any =
      std::any_of(read->parts.begin(), read->parts.end(), [&](const Part& part) { return read->Keeps(part); });
  absl::StatusOr<GetResult> result =
      read->whole() ? read->parts.front().result : Joined(read->parts, read->options.damaged);
  if (!any || !cache_.keeps()) return End(*read, std::move(result));
  if (read->into.size() <= kMaxCopiedHere) return KeepAndEnd(*read, std::move(result));
  // Copying takes longer than a thread of the store has to spare. The read may end, and the cache go,
  // while this thread is still handing it over: that counts, too.
  Begin(nullptr);
  cache_.readers().Submit(
      [this, read = std::move(read), result = std::move(result)]() mutable { KeepAndEnd(*read, std::move(result)); });
  Leave(nullptr);
}

void CachedStore::KeepAndEnd(Read& read, absl::StatusOr<GetResult> result) {
  // Claims that were taken before the cache was looked at once more may be of more parts: then all last as long.
  auto claims = std::make_shared<std::vector<std::shared_ptr<FetchClaims::Claim>>>(std::move(read.claims));
  size_t left = std::count_if(read.parts.begin(), read.parts.end(), [&](const Part& part) { return read.Keeps(part); });
  for (const Part& part : read.parts) {
    if (!read.Keeps(part)) continue;
    // None stays here, where it would be freed if the others are gone by then.
    cache_.Keep(read.identity, part.result->object_size, part.range.offset, read.PlaceOf(part.range), read.planned(),
                --left == 0 ? std::move(claims) : claims);
  }
  End(read, std::move(result));
}

void CachedStore::End(Read& read, absl::StatusOr<GetResult> result) {
  // On another thread: this may be one of the store, and to free a claim may wait for the disk. After the end of the
  // read the cache may go.
  if (!read.claims.empty()) cache_.readers().Submit([claims = std::move(read.claims)] {});
  std::move(read.done)(std::move(result));
  read.done = nullptr;
  Leave(&read);
}

}  // namespace millrace
