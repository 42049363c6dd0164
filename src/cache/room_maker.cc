#include "cache/room_maker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/crypto.h"
#include "cache/disk_usage.h"

namespace millrace {

namespace {

constexpr uint64_t kDrawDomain = 0x4d522d63616368;  // "MR-cach"
constexpr size_t kPool = 64;
constexpr int kDrawFiles = 16;
constexpr int kDrawsOfFile = 2;
constexpr int kRounds = 1024;
constexpr size_t kMostNames = size_t{4} << 20;
constexpr int64_t kListAgainMs = 10'000;
constexpr int64_t kListShare = 50;  // of the time, listing takes one part in so many at most
// Candidates are drawn again after so many ranges that found no room: little has changed.
constexpr int kRejectsOfDraw = 8;
// Without a plan, one in so many ranges that nobody has asked for lately gets room at the cost of others.
constexpr uint64_t kLottery = 16;
constexpr uint64_t kMostTurnedAway = 65536;
// Places that are free after a removal are as good if they differ by less: a number, or a part of the new object.
constexpr uint64_t kLeastWasteStep = 64;
constexpr uint64_t kWasteSteps = 64;
constexpr uint64_t kDiskBlock = 4096;
// A longer object loses little of its blocks, however it lies: then only the next use counts.
constexpr uint64_t kMostFittedBytes = 4 * kDiskBlock;
constexpr size_t kSlabsAtOnce = 16;
// A slab that is opened has all its records read: a draw has most of its candidates from slabs that are open.
constexpr int kOpensOfDraw = 4;
// For each range that asks for room and each that goes, opening slabs may read so many records. An open slab has ranges
// to remove for hundreds of them.
constexpr int64_t kRecordsEarned = 64;
// Opening a slab costs as much as so many records, however few it has.
constexpr int64_t kRecordsOfOpening = 256;
constexpr size_t kMostSeen = 16;
constexpr size_t kMostPools = 256;
// An object that comes to a slab asks for room once for each range that goes.
constexpr uint64_t kDrawOfSlab = 4;

int64_t SteadyMilliseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

uint64_t KeyOf(const std::string& name, uint64_t offset) {
  return Xxh3(AsBytes(name), offset);
}

}  // namespace

void ForEachCacheFile(const std::string& folder, CacheFileVisitor each) {
  std::error_code error;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator sub(folder, error); !error && sub != end; sub.increment(error)) {
    std::error_code of_files;
    const std::string of = sub->path().filename();
    if (sub->is_symlink(of_files)) continue;  // what it leads to lies elsewhere
    for (std::filesystem::directory_iterator file(sub->path(), of_files); !of_files && file != end;
         file.increment(of_files)) {
      const std::string name = file->path().filename();
      struct stat info {};
      if (!cache_format::IsFileName(of, name)) continue;
      if (lstat(file->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
      // No object is so long, and if one is, its ranges are drawn as those of a slab.
      const auto size = static_cast<uint64_t>(info.st_size);
      const uint64_t before = cache_format::RecordsAt(cache_format::kSlabBytes);
      const uint64_t records = size > before ? (size - before) / cache_format::kRecordBytes : 0;
      each(fmt::format("{}/{}", of, name), size > cache_format::kSlabBytes ? std::max<uint64_t>(records, 1) : 0);
    }
  }
}

std::optional<uint64_t> UnlinkUnused(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct stat info {};
  if (!fd || flock(fd.get(), LOCK_EX | LOCK_NB) != 0 || fstat(fd.get(), &info) != 0) return std::nullopt;
  const uint64_t counted = CountedBytes(path, info);
  if (info.st_nlink == 0 || unlink(path.c_str()) != 0) return std::nullopt;
  return counted;
}

RoomMaker::RoomMaker(Hooks hooks, size_t most_foreign_spans)
    : hooks_(std::move(hooks)),
      rng_(kDrawDomain),
      most_records_(static_cast<int64_t>(most_foreign_spans)),
      records_left_(most_records_) {}

void RoomMaker::Made(const std::string& name, uint64_t slab_records) {
  const std::lock_guard lock(mutex_);
  if (list_again_ms_) AddName(name, slab_records);
}

void RoomMaker::AddName(const std::string& name, uint64_t slab_records) {
  if (slab_records > 0) {
    const auto there = std::find_if(slabs_.begin(), slabs_.end(), [&](const Slab& slab) { return slab.name == name; });
    if (there == slabs_.end()) {
      slabs_.push_back({name, slab_records, slab_records, {}});
    } else {
      there->spans = slab_records;
      there->records = slab_records;
    }
    return;
  }
  if (names_.size() >= kMostNames) return;
  Name& added = names_.emplace_back();
  std::copy(name.begin(), name.begin() + 2, added.begin());
  std::copy(name.begin() + 3, name.end(), added.begin() + 2);
}

void RoomMaker::ListFiles() {
  const int64_t begin = SteadyMilliseconds();
  names_.clear();
  hooks_.list([this](const std::string& name, uint64_t slab_records) { AddName(name, slab_records); });
  const int64_t end = SteadyMilliseconds();
  list_again_ms_ = end + std::max(kListAgainMs, kListShare * (end - begin));
}

// They grow and shrink. A few at a time, in turn, of those that are open: the others have about as many ranges as the
// list says.
void RoomMaker::LookAtSlabs() {
  for (size_t i = 0; i < std::min(kSlabsAtOnce, slabs_.size()); ++i) {
    Slab& slab = slabs_[++slab_looked_at_ % slabs_.size()];
    if (const std::shared_ptr<CacheFile> file = hooks_.opened(slab.name)) slab.spans = file->spans();
  }
}

void RoomMaker::See(const Seen& seen) {
  policy_.Saw(seen.hints, seen.bytes);
  drawn_bytes_ += static_cast<double>(seen.bytes);
  ++drawn_;
}

// `slab`, if not null, is the one of that name. Unless it `counts`, it says nothing of the shares of jobs.
void RoomMaker::DrawFrom(const std::string& name, bool* vanished, Pool& pool, Slab* slab, bool counts) {
  const std::shared_ptr<CacheFile> file = hooks_.open(name);
  *vanished = file == nullptr;
  if (file == nullptr) return;
  if (!file->can_change()) return;
  if (const uint64_t freed = file->Reclaim(); freed > 0) hooks_.give_back(freed);
  for (int i = 0; i < kDrawsOfFile; ++i) {
    const std::optional<CachedSpan> span = file->Any(rng_);
    if (!span) {
      if (const uint64_t freed = file->UnlinkIfEmpty(); freed > 0) {
        hooks_.forget(name, file);
        hooks_.give_back(freed);
        *vanished = true;
      }
      return;
    }
    const Seen seen{span->hints, span->range.length};
    if (counts) See(seen);
    if (slab != nullptr && slab->seen.size() < kMostSeen) {
      slab->seen.push_back(seen);
    } else if (slab != nullptr) {
      slab->seen[drawn_ % kMostSeen] = seen;
    }
    if (span->hints.job == UseHints::kPinned && !draws_pinned_) continue;
    const bool there = std::any_of(pool.begin(), pool.end(), [&](const Candidate& other) {
      return other.range == span->range && other.name == name;
    });
    if (there) continue;
    pool.push_back({name,
                    file,
                    span->range,
                    file->is_slab() ? span->tag : span->range.offset,
                    {span->hints, span->range.length, hooks_.knows(file->identity().store)}});
  }
}

// Draws from files one like the other, and from slabs by the number of their ranges, which are those of many objects.
void RoomMaker::DrawAny() {
  uint64_t all = names_.size();
  const auto weight = [](const Slab& slab) { return slab.spans / kDrawsOfFile + 1; };
  for (const Slab& slab : slabs_) all += weight(slab);
  if (all == 0) return;
  uint64_t at = rng_.Below(all);
  bool vanished = false;
  if (at < names_.size()) {
    const std::string_view digits(names_[at].data(), names_[at].size());
    DrawFrom(fmt::format("{}/{}", digits.substr(0, 2), digits.substr(2)), &vanished, pool_);
    if (!vanished) return;
    names_[at] = names_.back();
    names_.pop_back();
    return;
  }
  at -= names_.size();
  auto slab = slabs_.begin();
  for (; at >= weight(*slab); ++slab) at -= weight(*slab);
  const bool is_open = hooks_.opened(slab->name) != nullptr;
  if (!is_open && (records_left_ <= 0 || opens_left_-- <= 0))
    return DrawInsteadOf(static_cast<size_t>(slab - slabs_.begin()));
  DrawFrom(slab->name, &vanished, pool_, &*slab);
  if (vanished) {
    slabs_.erase(slab);
  } else if (!is_open) {
    const auto read = static_cast<int64_t>(std::max(slab->records, slab->spans)) + kRecordsOfOpening;
    records_left_ = std::max(records_left_ - read, -most_records_);
  }
}

// A slab that stays closed has its part in the shares of jobs, as it was. The candidates come from the next open one.
void RoomMaker::DrawInsteadOf(size_t closed) {
  const std::vector<Seen>& seen = slabs_[closed].seen;
  for (int i = 0; i < kDrawsOfFile && !seen.empty(); ++i) See(seen[rng_.Below(seen.size())]);
  for (size_t i = 1; i < slabs_.size(); ++i) {
    const auto next = slabs_.begin() + static_cast<ptrdiff_t>((closed + i) % slabs_.size());
    if (hooks_.opened(next->name) == nullptr) continue;
    bool vanished = false;
    DrawFrom(next->name, &vanished, pool_, &*next, /*counts=*/false);
    if (vanished) slabs_.erase(next);
    return;
  }
}

void RoomMaker::EarnRecords() {
  records_left_ = std::min(records_left_ + kRecordsEarned, most_records_);
}

// `own`, if not null, is of the slab of that name, which has what is alike.
void RoomMaker::Draw(Pool* own, const std::string& own_slab) {
  if (!list_again_ms_ || SteadyMilliseconds() > *list_again_ms_) ListFiles();
  LookAtSlabs();
  opens_left_ = kOpensOfDraw;
  for (int i = 0; i < kDrawFiles; ++i) {
    bool vanished = false;
    if (own == nullptr || i % 2 == 0) {
      DrawAny();
    } else {
      DrawFrom(own_slab, &vanished, *own);
    }
  }
  DropClosed(own);
  Trim(pool_);
  if (own != nullptr) Trim(*own);
}

// Candidates would keep the records of slabs in memory. `own` stays, if not null: what is drawn for it is used at once.
void RoomMaker::DropClosed(const Pool* own) {
  const auto is_closed = [&](const Candidate& candidate) {
    return candidate.file->is_slab() && hooks_.opened(candidate.name) != candidate.file;
  };
  std::erase_if(pool_, is_closed);
  std::erase_if(of_slabs_, [&](const auto& of_slab) {
    const Pool& pool = of_slab.second;
    return &pool != own && !pool.empty() && is_closed(pool.front());
  });
}

// Returns the candidates of the slab that something is to come to; null if it goes to a file of its own.
RoomMaker::Pool* RoomMaker::PoolOf(const Incoming& incoming) {
  if (incoming.place_bytes == 0) return nullptr;
  // They keep files open.
  if (of_slabs_.size() >= kMostPools && !of_slabs_.contains(incoming.name)) of_slabs_.clear();
  return &of_slabs_[incoming.name];
}

// Keeps the best of each job.
void RoomMaker::Trim(Pool& pool) const {
  if (pool.size() <= kPool) return;
  std::sort(pool.begin(), pool.end(), [&](const Candidate& a, const Candidate& b) {
    if (a.of.hints.job != b.of.hints.job) return a.of.hints.job < b.of.hints.job;
    return policy_.Before(a.of.hints, b.of.hints);
  });
  size_t in_job = 0;
  uint32_t job = 0;
  std::erase_if(pool, [&](const Candidate& candidate) {
    if (candidate.of.hints.job != job) {
      job = candidate.of.hints.job;
      in_job = 0;
    }
    return ++in_job > kPool;
  });
}

void RoomMaker::Remember(const std::string& name, uint64_t offset, const UseHints& hints) {
  if (hints.job != UseHints::kUnplanned) return;
  const uint64_t key = KeyOf(name, offset);
  if (turned_away_.insert(key).second) turned_away_order_.push_back(key);
}

// Returns whether a range without a plan may take the place of others. Sets `proven`.
bool RoomMaker::Admits(Incoming& incoming, uint64_t cached_bytes) {
  if (incoming.forced || incoming.hints.job != UseHints::kUnplanned) return true;
  const double mean = drawn_ > 0 ? drawn_bytes_ / static_cast<double>(drawn_) : 1 << 20;
  // As many as there are in the cache.
  const auto most =
      std::clamp<uint64_t>(static_cast<uint64_t>(static_cast<double>(cached_bytes) / mean), 1, kMostTurnedAway);
  while (turned_away_order_.size() > most) {
    turned_away_.erase(turned_away_order_.front());
    turned_away_order_.pop_front();
  }
  incoming.proven = turned_away_.contains(KeyOf(incoming.name, incoming.offset));
  return incoming.proven || rng_.Below(kLottery) == 0;
}

absl::StatusOr<uint64_t> RoomMaker::Evict(const Candidate& candidate) {
  const absl::StatusOr<uint64_t> removed = candidate.file->Remove(candidate.range);
  RETURN_IF_ERROR(removed.status());
  uint64_t freed = *removed;
  if (freed > 0 || candidate.file->is_slab()) Remember(candidate.name, candidate.key, candidate.of.hints);
  if (candidate.file->spans() == 0) {
    if (const uint64_t rest = candidate.file->UnlinkIfEmpty(); rest > 0) {
      hooks_.forget(candidate.name, candidate.file);
      freed += rest;
    }
  }
  if (freed > 0) hooks_.give_back(freed);
  return freed;
}

// Candidates that go before what comes differ in what they leave: a place that is hardly longer, or else whole blocks
// of the disk. Among those that leave about the same, the one that is needed last goes.
size_t RoomMaker::LeastWaste(const std::vector<const Candidate*>& all, size_t chosen, const Incoming& incoming) const {
  const uint64_t length = incoming.forced ? all[chosen]->range.length : incoming.place_bytes;
  if (length == 0 || length > kMostFittedBytes || (incoming.forced && !all[chosen]->file->is_slab())) return chosen;
  const uint32_t job = all[chosen]->of.hints.job;
  const JobClock* const clock = policy_.Find(job);
  const bool planned = job > UseHints::kPinned && clock != nullptr;
  if (!incoming.forced && (!planned || incoming.hints.job != job)) return chosen;
  const auto distance = [&](const UseHints& hints) { return planned ? policy_.Distance(hints, *clock) : 0; };
  // When something must go, whatever for, what is needed about as late as the last one.
  const uint64_t least_distance = incoming.forced ? distance(all[chosen]->of.hints) / 2 : distance(incoming.hints) + 1;
  for (const uint64_t bytes : {incoming.place_bytes, uint64_t{0}}) {
    const auto step = static_cast<int64_t>(bytes > 0 ? std::max(kLeastWasteStep, bytes / kWasteSteps) : kDiskBlock);
    std::optional<size_t> best;
    std::pair<int64_t, uint64_t> of_best;
    for (size_t i = 0; i < all.size(); ++i) {
      const Candidate& candidate = *all[i];
      if (candidate.of.hints.job != job || !candidate.file->is_slab()) continue;
      const uint64_t farness = distance(candidate.of.hints);
      if (farness < least_distance || (bytes > 0 && candidate.name != incoming.name)) continue;
      const std::optional<int64_t> waste = candidate.file->WasteOfRemoving(candidate.range, bytes);
      if (!waste) continue;
      const std::pair<int64_t, uint64_t> value((*waste - (*waste < 0 ? step - 1 : 0)) / step,
                                               UseHints::kNever - std::min(farness, UseHints::kNever));
      if (best && value >= of_best) continue;
      best = i;
      of_best = value;
    }
    if (best) return *best;
  }
  return chosen;
}

// Removes or spares the candidate. Returns the bytes that are free by that; nullopt if nothing more is to be removed.
std::optional<uint64_t> RoomMaker::EvictChosen(Candidate chosen, EvictionPolicy::Choice::What what,
                                               const Incoming& incoming, Pool& pool) {
  // Its hints may have changed since it was drawn.
  const std::optional<CachedSpan> now = chosen.file->Current(chosen.range);
  if (!now) return 0;
  if (now->hints != chosen.of.hints) {
    chosen.of.hints = now->hints;
    pool.push_back(std::move(chosen));
    return 0;
  }
  if (what == EvictionPolicy::Choice::What::kSpare) {
    const auto stamp = static_cast<uint64_t>(UnixMilliseconds());
    chosen.file->ChangeHints(chosen.range,
                             [&](const UseHints& of, ByteRange) { return EvictionPolicy::Spared(of, stamp); });
    return std::nullopt;
  }
  const absl::StatusOr<uint64_t> evicted = Evict(chosen);
  if (absl::IsDeadlineExceeded(evicted.status())) {
    hooks_.failed(evicted.status());
    return std::nullopt;
  }
  if (!evicted.ok()) return 0;
  // In a slab the place is free as soon as its range is gone, whatever its neighbours have of its blocks.
  const bool of_place = chosen.file->is_slab() && (incoming.forced || chosen.name == incoming.name);
  return of_place ? std::max(chosen.range.length, *evicted) : *evicted;
}

bool RoomMaker::MakeRoom(uint64_t bytes, Incoming& incoming, uint64_t cached_bytes, std::vector<JobClock> jobs) {
  const std::lock_guard lock(mutex_);
  policy_.SetJobs(std::move(jobs));
  draws_pinned_ = incoming.forced;
  EarnRecords();
  Pool* const own = PoolOf(incoming);
  const auto in_pools = [&] { return std::max(pool_.size(), own == nullptr ? 0 : own->size()); };
  const bool again = own == nullptr ? rejected_ % kRejectsOfDraw == 0 : draws_of_slabs_++ % kDrawOfSlab == 0;
  if (again || in_pools() < kPool / 2) Draw(own, incoming.name);
  const bool admitted = Admits(incoming, cached_bytes);
  uint64_t freed = 0;
  for (int round = 0; round < kRounds; ++round) {
    if (freed >= bytes) {
      rejected_ = 0;
      return true;
    }
    std::vector<const Candidate*> all;
    for (const Candidate& candidate : pool_) all.push_back(&candidate);
    if (own != nullptr)
      for (const Candidate& candidate : *own) all.push_back(&candidate);
    std::vector<EvictionPolicy::Candidate> candidates;
    for (const Candidate* candidate : all) candidates.push_back(candidate->of);
    const EvictionPolicy::Choice choice =
        incoming.forced ? policy_.ChooseForced(candidates) : policy_.Choose(candidates, incoming.hints);
    if (choice.what == EvictionPolicy::Choice::What::kReject) break;
    if (!admitted && policy_.Find(candidates[choice.index].hints.job) != nullptr) break;
    const bool evicts = choice.what == EvictionPolicy::Choice::What::kEvict;
    const size_t index = evicts ? LeastWaste(all, choice.index, incoming) : choice.index;
    Pool& pool = index < pool_.size() ? pool_ : *own;
    const auto at = pool.begin() + static_cast<ptrdiff_t>(index < pool_.size() ? index : index - pool_.size());
    Candidate chosen = std::move(*at);
    pool.erase(at);
    const std::optional<uint64_t> of_chosen = EvictChosen(std::move(chosen), choice.what, incoming, pool);
    if (!of_chosen) break;
    freed += *of_chosen;
    if (*of_chosen > 0) EarnRecords();
    if (in_pools() < kPool / 4) Draw(own, incoming.name);
  }
  ++rejected_;
  if (!incoming.forced) Remember(incoming.name, incoming.offset, incoming.hints);
  return freed >= bytes;
}

}  // namespace millrace
