#include "cache/eviction.h"

#include <algorithm>
#include <utility>

namespace millrace {

namespace {

constexpr uint64_t kReadsMask = 3;
constexpr uint64_t kProvenBit = 4;
constexpr int kStampShift = 3;
// The share of the bytes of ranges without a plan: ranges that were not read again may take so much before those that
// were.
constexpr double kUnprovenShare = 0.1;
// Forgets what was seen long ago: the sums are halved after so many candidates.
constexpr int kSeenAtOnce = 512;
constexpr double kShareSlack = 1.05;

}  // namespace

UseHints UnplannedUse::Pack() const {
  return {UseHints::kUnplanned, written_ms << kStampShift | (proven ? kProvenBit : 0) | std::min(reads, kMaxReads)};
}

UnplannedUse UnplannedUse::Of(const UseHints& hints) {
  return {.written_ms = hints.next_use >> kStampShift,
          .proven = (hints.next_use & kProvenBit) != 0,
          .reads = hints.next_use & kReadsMask};
}

UseHints EvictionPolicy::Spared(const UseHints& hints, uint64_t now_ms) {
  UnplannedUse use = UnplannedUse::Of(hints);
  use.proven = true;
  use.written_ms = now_ms;
  use.reads -= std::min<uint64_t>(use.reads, 1);
  return use.Pack();
}

const JobClock* EvictionPolicy::Find(uint32_t job) const {
  for (const JobClock& clock : jobs_) {
    if (clock.job == job) return &clock;
  }
  return nullptr;
}

void EvictionPolicy::Saw(const UseHints& hints, uint64_t bytes) {
  const uint32_t job = Find(hints.job) == nullptr ? 0 : hints.job;
  auto own = std::find_if(shares_.begin(), shares_.end(), [&](const Share& share) { return share.job == job; });
  if (own == shares_.end()) own = shares_.insert(own, {job, 0});
  own->bytes += static_cast<double>(bytes);
  if (job == UseHints::kUnplanned && !UnplannedUse::Of(hints).proven) unproven_ += static_cast<double>(bytes);
  if (++seen_ < kSeenAtOnce) return;
  seen_ = 0;
  for (Share& share : shares_) share.bytes /= 2;
  unproven_ /= 2;
}

double EvictionPolicy::ShareOf(uint32_t job) const {
  double sum = 0;
  double own = 0;
  for (const Share& share : shares_) {
    sum += share.bytes;
    if (share.job == job) own = share.bytes;
  }
  return sum > 0 ? own / sum : 0;
}

uint64_t EvictionPolicy::Distance(const UseHints& hints, const JobClock& job) const {
  if (hints.next_use >= UseHints::kNever) return UseHints::kNever;
  // A position that has passed without the read: it will not come before the next epoch.
  if (hints.next_use < job.clock) return job.period;
  const uint64_t distance = hints.next_use - job.clock;
  // It is of another run of the same plan, which was further: some time in this epoch.
  return distance > 2 * job.period ? job.period / 2 : distance;
}

bool EvictionPolicy::Before(const UseHints& a, const UseHints& b) const {
  if (a.job == UseHints::kUnplanned) {
    const UnplannedUse of_a = UnplannedUse::Of(a);
    const UnplannedUse of_b = UnplannedUse::Of(b);
    return std::pair(of_a.proven, of_a.written_ms) < std::pair(of_b.proven, of_b.written_ms);
  }
  const JobClock* const job = Find(a.job);
  return job != nullptr && Distance(a, *job) > Distance(b, *job);
}

EvictionPolicy::Choice EvictionPolicy::ChooseUnplanned(std::span<const Candidate> candidates, bool may_reject) const {
  const double all = ShareOf(UseHints::kUnplanned);
  double sum = 0;
  for (const Share& share : shares_) sum += share.bytes;
  const bool unproven_first = sum > 0 && unproven_ / sum > all * kUnprovenShare;
  std::optional<size_t> best;
  const auto key = [&](size_t index) {
    const UnplannedUse use = UnplannedUse::Of(candidates[index].hints);
    return std::pair(use.proven == unproven_first, use.written_ms);
  };
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].hints.job != UseHints::kUnplanned) continue;
    if (!best || key(i) < key(*best)) best = i;
  }
  if (!best) return {};
  if (may_reject && UnplannedUse::Of(candidates[*best].hints).reads > 0) return {Choice::What::kSpare, *best};
  return {Choice::What::kEvict, *best};
}

EvictionPolicy::Choice EvictionPolicy::ChoosePlanned(std::span<const Candidate> candidates, const JobClock& job,
                                                     const UseHints* incoming) const {
  std::optional<size_t> best;
  uint64_t farthest = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    const bool own = candidate.hints.job == job.job;
    // Its plan is not at work any more, but this one reads its object: some time in this epoch.
    const bool is_free = candidate.hints.job != UseHints::kPinned && Find(candidate.hints.job) == nullptr;
    const bool adopted = !own && candidate.known && is_free;
    if (!own && !adopted) continue;
    const uint64_t distance = own ? Distance(candidate.hints, job) : job.period / 2;
    if (best && distance <= farthest) continue;
    best = i;
    farthest = distance;
  }
  if (!best || (incoming != nullptr && farthest <= Distance(*incoming, job))) return {};
  return {Choice::What::kEvict, *best};
}

EvictionPolicy::Choice EvictionPolicy::Choose(std::span<const Candidate> candidates, const UseHints& incoming) const {
  if (incoming.job == UseHints::kPinned) {
    const Choice choice = ChooseForced(candidates);  // what is pinned comes last
    const bool other = choice.what == Choice::What::kEvict && candidates[choice.index].hints.job != UseHints::kPinned;
    return other ? choice : Choice{};
  }
  const JobClock* const own = Find(incoming.job);
  const bool unplanned = own == nullptr || own->job == UseHints::kUnplanned;
  const bool useless = !unplanned && incoming.next_use >= UseHints::kNever;
  // First go ranges that nobody that is alive has written or reads.
  for (size_t i = 0; i < candidates.size() && !useless; ++i) {
    if (candidates[i].hints.job == UseHints::kPinned || Find(candidates[i].hints.job) != nullptr) continue;
    if (unplanned || !candidates[i].known) return {Choice::What::kEvict, i};
  }
  // A job with more than its part gives to one with less.
  const double fair = 1.0 / std::max<double>(1, static_cast<double>(jobs_.size()));
  if (own != nullptr && !useless && jobs_.size() > 1 && ShareOf(own->job) < fair) {
    for (const JobClock& other : jobs_) {
      if (other.job == own->job || ShareOf(other.job) <= fair * kShareSlack) continue;
      const Choice choice = other.job == UseHints::kUnplanned ? ChooseUnplanned(candidates, /*may_reject=*/false)
                                                              : ChoosePlanned(candidates, other, nullptr);
      if (choice.what == Choice::What::kEvict) return choice;
    }
  }
  return unplanned ? ChooseUnplanned(candidates, /*may_reject=*/true) : ChoosePlanned(candidates, *own, &incoming);
}

EvictionPolicy::Choice EvictionPolicy::ChooseForced(std::span<const Candidate> candidates) const {
  const auto key = [&](const Candidate& candidate) {
    if (candidate.hints.job == UseHints::kPinned) return std::pair(-1, 0.0);
    const JobClock* const job = Find(candidate.hints.job);
    if (job == nullptr) return std::pair(2, 0.0);
    if (job->job == UseHints::kUnplanned)
      return std::pair(1, -static_cast<double>(UnplannedUse::Of(candidate.hints).written_ms));
    return std::pair(0, static_cast<double>(Distance(candidate.hints, *job)) / static_cast<double>(job->period));
  };
  Choice choice;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (choice.what == Choice::What::kEvict && key(candidates[i]) <= key(candidates[choice.index])) continue;
    choice = {Choice::What::kEvict, i};
  }
  return choice;
}

}  // namespace millrace
