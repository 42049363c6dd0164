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

int64_t SteadyMilliseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

uint64_t KeyOf(const std::string& name, uint64_t offset) {
  return Xxh3(AsBytes(name), offset);
}

}  // namespace

void ForEachCacheFile(const std::string& folder, absl::FunctionRef<void(const std::string&)> each) {
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
      if (lstat(file->path().c_str(), &info) == 0 && S_ISREG(info.st_mode)) each(of + "/" + name);
    }
  }
}

std::optional<uint64_t> UnlinkUnused(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct stat info {};
  if (!fd || flock(fd.get(), LOCK_EX | LOCK_NB) != 0 || fstat(fd.get(), &info) != 0) return std::nullopt;
  if (info.st_nlink == 0 || unlink(path.c_str()) != 0) return std::nullopt;
  return static_cast<uint64_t>(info.st_blocks) * kStatBlockBytes + kFileMarginBytes;
}

RoomMaker::RoomMaker(Hooks hooks) : hooks_(std::move(hooks)), rng_(kDrawDomain) {}

void RoomMaker::Made(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (list_again_ms_) AddName(name);
}

void RoomMaker::AddName(const std::string& name) {
  if (names_.size() >= kMostNames) return;
  Name& added = names_.emplace_back();
  std::copy(name.begin(), name.begin() + 2, added.begin());
  std::copy(name.begin() + 3, name.end(), added.begin() + 2);
}

void RoomMaker::ListFiles() {
  const int64_t begin = SteadyMilliseconds();
  names_.clear();
  hooks_.list([this](const std::string& name) { AddName(name); });
  const int64_t end = SteadyMilliseconds();
  list_again_ms_ = end + std::max(kListAgainMs, kListShare * (end - begin));
}

void RoomMaker::DrawFrom(const std::string& name, bool* vanished) {
  const std::shared_ptr<CacheFile> file = hooks_.open(name);
  *vanished = file == nullptr;
  if (file == nullptr) return;
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
    policy_.Saw(span->hints, span->range.length);
    drawn_bytes_ += static_cast<double>(span->range.length);
    ++drawn_;
    if (span->hints.job == UseHints::kPinned && !draws_pinned_) continue;
    const bool there = std::any_of(pool_.begin(), pool_.end(), [&](const Candidate& other) {
      return other.range == span->range && other.name == name;
    });
    if (there) continue;
    pool_.push_back({name,
                     file,
                     span->range,
                     file->is_slab() ? span->tag : span->range.offset,
                     {span->hints, span->range.length, hooks_.knows(file->identity().store)}});
  }
}

void RoomMaker::Draw() {
  if (!list_again_ms_ || SteadyMilliseconds() > *list_again_ms_) ListFiles();
  for (int i = 0; i < kDrawFiles && !names_.empty(); ++i) {
    const size_t at = rng_.Below(names_.size());
    const std::string_view digits(names_[at].data(), names_[at].size());
    const std::string name = fmt::format("{}/{}", digits.substr(0, 2), digits.substr(2));
    bool vanished = false;
    DrawFrom(name, &vanished);
    if (!vanished) continue;
    names_[at] = names_.back();
    names_.pop_back();
  }
  Trim();
}

// Keeps the best of each job.
void RoomMaker::Trim() {
  if (pool_.size() <= kPool) return;
  std::sort(pool_.begin(), pool_.end(), [&](const Candidate& a, const Candidate& b) {
    if (a.of.hints.job != b.of.hints.job) return a.of.hints.job < b.of.hints.job;
    return policy_.Before(a.of.hints, b.of.hints);
  });
  size_t in_job = 0;
  uint32_t job = 0;
  std::erase_if(pool_, [&](const Candidate& candidate) {
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

// Without a plan: whether it may take the place of others. Sets `proven`.
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

bool RoomMaker::MakeRoom(uint64_t bytes, Incoming& incoming, uint64_t cached_bytes, std::vector<JobClock> jobs) {
  const std::lock_guard lock(mutex_);
  policy_.SetJobs(std::move(jobs));
  draws_pinned_ = incoming.forced;
  if (pool_.size() < kPool / 2 || rejected_ % kRejectsOfDraw == 0) Draw();
  const bool admitted = Admits(incoming, cached_bytes);
  uint64_t freed = 0;
  std::vector<EvictionPolicy::Candidate> candidates;
  for (int round = 0; round < kRounds; ++round) {
    if (freed >= bytes) {
      rejected_ = 0;
      return true;
    }
    candidates.clear();
    for (const Candidate& candidate : pool_) candidates.push_back(candidate.of);
    const EvictionPolicy::Choice choice =
        incoming.forced ? policy_.ChooseForced(candidates) : policy_.Choose(candidates, incoming.hints);
    if (choice.what == EvictionPolicy::Choice::What::kReject) break;
    if (!admitted && policy_.Find(pool_[choice.index].of.hints.job) != nullptr) break;
    Candidate chosen = std::move(pool_[choice.index]);
    pool_.erase(pool_.begin() + static_cast<ptrdiff_t>(choice.index));
    // Its hints may have changed since it was drawn.
    const std::optional<CachedSpan> now = chosen.file->Current(chosen.range);
    if (now && now->hints != chosen.of.hints) {
      chosen.of.hints = now->hints;
      pool_.push_back(std::move(chosen));
      continue;
    }
    if (now && choice.what == EvictionPolicy::Choice::What::kSpare) {
      const auto stamp = static_cast<uint64_t>(UnixMilliseconds());
      chosen.file->ChangeHints(chosen.range,
                               [&](const UseHints& of, ByteRange) { return EvictionPolicy::Spared(of, stamp); });
      break;
    }
    const absl::StatusOr<uint64_t> evicted = now ? Evict(chosen) : 0;
    if (absl::IsDeadlineExceeded(evicted.status())) {
      hooks_.failed(evicted.status());
      break;
    }
    freed += evicted.value_or(0);
    // In a slab the place is free as soon as its range is gone, whatever its neighbours have of its blocks.
    const bool of_place = now && evicted.ok() && chosen.file->is_slab() && (incoming.in_slab || incoming.forced);
    if (of_place) freed += chosen.range.length - std::min(chosen.range.length, *evicted);
    if (pool_.size() < kPool / 4) Draw();
  }
  ++rejected_;
  if (!incoming.forced) Remember(incoming.name, incoming.offset, incoming.hints);
  return freed >= bytes;
}

}  // namespace millrace
