#include "cache/eviction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <unordered_map>
#include <vector>

#include "base/rng.h"

namespace millrace {
namespace {

using What = EvictionPolicy::Choice::What;

constexpr uint32_t kJob = 7;
constexpr uint32_t kOther = 8;

EvictionPolicy::Candidate Planned(uint64_t next_use, uint32_t job = kJob) {
  return {{job, next_use}, 100, true};
}

TEST(Eviction, WhatIsUsedLastGoesFirstAndWhatComesLaterIsNotWritten) {
  EvictionPolicy policy;
  policy.SetJobs({{kJob, 1000, 500}});
  const std::vector<EvictionPolicy::Candidate> there = {Planned(1100), Planned(1300), Planned(1200)};
  EXPECT_EQ(policy.Choose(there, {kJob, 1250}).index, 1u);
  EXPECT_EQ(policy.Choose(there, {kJob, 1250}).what, What::kEvict);
  EXPECT_EQ(policy.Choose(there, {kJob, 1300}).what, What::kReject);
  EXPECT_EQ(policy.Choose(there, {kJob, UseHints::kNever}).what, What::kReject);
  EXPECT_EQ(policy.Choose({}, {kJob, 1001}).what, What::kReject);
}

TEST(Eviction, WhatHasPassedOrIsOfAnotherRunIsNotTakenForTheNearest) {
  EvictionPolicy policy;
  policy.SetJobs({{kJob, 1000, 500}});
  EXPECT_EQ(policy.Distance({kJob, 999}, {kJob, 1000, 500}), 500u) << "not before the next epoch";
  EXPECT_EQ(policy.Distance({kJob, 1000}, {kJob, 1000, 500}), 0u);
  EXPECT_EQ(policy.Distance({kJob, 9000}, {kJob, 1000, 500}), 250u) << "some time in this one";
  EXPECT_EQ(policy.Distance({kJob, UseHints::kNever}, {kJob, 1000, 500}), UseHints::kNever);
}

TEST(Eviction, OfDeadRunsGoesFirstWhatNobodyReads) {
  EvictionPolicy policy;
  policy.SetJobs({{kJob, 1000, 500}});
  EvictionPolicy::Candidate foreign = Planned(1, 99);
  foreign.known = false;
  const std::vector<EvictionPolicy::Candidate> there = {Planned(1499), foreign};
  EXPECT_EQ(policy.Choose(there, {kJob, 1498}).index, 1u);
  EXPECT_EQ(policy.Choose(there, {kJob, UseHints::kNever}).what, What::kReject) << "for nothing";
  // This job reads the object: some time in this epoch.
  const std::vector<EvictionPolicy::Candidate> known = {Planned(1499), Planned(1, 99)};
  EXPECT_EQ(policy.Choose(known, {kJob, 1100}).index, 0u);
  EXPECT_EQ(policy.Choose({&known[1], 1}, {kJob, 1100}).what, What::kEvict);
  EXPECT_EQ(policy.Choose({&known[1], 1}, {kJob, 1300}).what, What::kReject);
}

TEST(Eviction, JobsShareAlike) {
  EvictionPolicy policy;
  policy.SetJobs({{kJob, 0, 500}, {kOther, 0, 500}});
  const std::vector<EvictionPolicy::Candidate> there = {Planned(10), Planned(20, kOther), Planned(30, kOther)};
  policy.Saw({kJob, 0}, 800);
  policy.Saw({kOther, 0}, 200);
  EXPECT_EQ(policy.Choose(there, {kOther, 400}).index, 0u) << "the one with more gives";
  EXPECT_EQ(policy.Choose(there, {kJob, 5}).index, 0u) << "and not the one with less";
  policy.Saw({kOther, 0}, 600);
  EXPECT_EQ(policy.Choose(there, {kOther, 25}).index, 2u) << "both have their part: each of its own";
}

TEST(Eviction, WhatIsPinnedMakesRoomForNothing) {
  EvictionPolicy policy;
  policy.SetJobs({{kJob, 1000, 500}, {UseHints::kUnplanned, 0, 1}});
  EvictionPolicy::Candidate pinned = Planned(1900, UseHints::kPinned);
  const std::vector<EvictionPolicy::Candidate> there = {pinned, Planned(1300)};
  EXPECT_EQ(policy.Choose(there, {kJob, 1100}).index, 1u);
  for (const bool known : {true, false}) {
    pinned.known = known;
    EXPECT_EQ(policy.Choose({&pinned, 1}, {kJob, 1001}).what, What::kReject);
    EXPECT_EQ(policy.Choose({&pinned, 1}, UnplannedUse{.written_ms = 3}.Pack()).what, What::kReject);
    EXPECT_EQ(policy.Choose({&pinned, 1}, {UseHints::kPinned, 1001}).what, What::kReject);
  }
  // And it takes the room of all others.
  EXPECT_EQ(policy.Choose(there, {UseHints::kPinned, 1499}).index, 1u);
  EXPECT_EQ(policy.Choose(there, {UseHints::kPinned, 1499}).what, What::kEvict);
  // But a bound is a bound.
  EXPECT_EQ(policy.ChooseForced(there).index, 1u);
  EXPECT_EQ(policy.ChooseForced({&pinned, 1}).what, What::kEvict);
}

TEST(Eviction, WhatWasReadSinceIsSparedOnce) {
  EvictionPolicy policy;
  policy.SetJobs({{UseHints::kUnplanned, 0, 1}});
  EvictionPolicy::Candidate old{UnplannedUse{.written_ms = 10, .proven = true, .reads = 1}.Pack(), 100, true};
  const EvictionPolicy::Candidate young{UnplannedUse{.written_ms = 20, .proven = true, .reads = 0}.Pack(), 100, true};
  const UseHints incoming = UnplannedUse{.written_ms = 30}.Pack();
  EXPECT_EQ(policy.Choose(std::vector{old, young}, incoming).what, What::kSpare);
  EXPECT_EQ(policy.Choose(std::vector{old, young}, incoming).index, 0u);
  old.hints = EvictionPolicy::Spared(old.hints, 25);
  EXPECT_EQ(policy.Choose(std::vector{old, young}, incoming).index, 1u);
  EXPECT_EQ(policy.Choose(std::vector{old, young}, incoming).what, What::kEvict);
  const UnplannedUse use = UnplannedUse::Of(old.hints);
  EXPECT_EQ(use.written_ms, 25u);
  EXPECT_EQ(use.reads, 0u);
}

// ---- Against the optimum and LRU, as simulated here

/// Requests of items of one size; the hits of the last `counted` of them.
struct Trace {
  std::vector<uint64_t> items;
  size_t counted = 0;
};

std::vector<uint64_t> NextUses(const std::vector<uint64_t>& items) {
  std::vector<uint64_t> next(items.size(), UseHints::kNever);
  std::unordered_map<uint64_t, uint64_t> seen;
  for (size_t i = items.size(); i-- > 0;) {
    if (const auto at = seen.find(items[i]); at != seen.end()) next[i] = at->second;
    seen[items[i]] = i;
  }
  return next;
}

double Optimum(const Trace& trace, size_t capacity) {
  const std::vector<uint64_t> next = NextUses(trace.items);
  std::map<std::pair<uint64_t, uint64_t>, bool> by_use;  // next use, item
  std::unordered_map<uint64_t, uint64_t> cached;         // item, next use
  size_t hits = 0;
  for (size_t i = 0; i < trace.items.size(); ++i) {
    const uint64_t item = trace.items[i];
    if (const auto at = cached.find(item); at != cached.end()) {
      hits += i + trace.counted >= trace.items.size() ? 1 : 0;
      by_use.erase({at->second, item});
    }
    cached[item] = next[i];
    by_use[{next[i], item}] = true;
    if (cached.size() <= capacity) continue;
    const auto last = std::prev(by_use.end());
    cached.erase(last->first.second);
    by_use.erase(last);
  }
  return double(hits) / double(trace.counted);
}

double Lru(const Trace& trace, size_t capacity) {
  std::list<uint64_t> order;
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> at;
  size_t hits = 0;
  for (size_t i = 0; i < trace.items.size(); ++i) {
    const uint64_t item = trace.items[i];
    if (const auto found = at.find(item); found != at.end()) {
      hits += i + trace.counted >= trace.items.size() ? 1 : 0;
      order.erase(found->second);
    }
    order.push_front(item);
    at[item] = order.begin();
    if (order.size() <= capacity) continue;
    at.erase(order.back());
    order.pop_back();
  }
  return double(hits) / double(trace.counted);
}

// Returns the share of hits of EvictionPolicy, with 64 candidates drawn at random.
double Ours(const Trace& trace, size_t capacity, uint64_t period) {
  const std::vector<uint64_t> next = NextUses(trace.items);
  EvictionPolicy policy;
  Rng rng(5);
  std::vector<uint64_t> there;
  std::unordered_map<uint64_t, std::pair<size_t, UseHints>> at;
  size_t hits = 0;
  for (size_t i = 0; i < trace.items.size(); ++i) {
    policy.SetJobs({{kJob, i, period}});
    const uint64_t item = trace.items[i];
    const UseHints hints{kJob, next[i]};
    if (const auto found = at.find(item); found != at.end()) {
      hits += i + trace.counted >= trace.items.size() ? 1 : 0;
      found->second.second = hints;
      continue;
    }
    if (there.size() == capacity) {
      std::vector<uint64_t> drawn;
      std::vector<EvictionPolicy::Candidate> candidates;
      for (int draw = 0; draw < 64; ++draw) {
        drawn.push_back(there[rng.Below(there.size())]);
        candidates.push_back({at.at(drawn.back()).second, 1, true});
      }
      const EvictionPolicy::Choice choice = policy.Choose(candidates, hints);
      if (choice.what != What::kEvict) continue;
      const size_t place = at.at(drawn[choice.index]).first;
      at.erase(drawn[choice.index]);
      there[place] = there.back();
      if (place < there.size() - 1) at.at(there[place]).first = place;
      there.pop_back();
    }
    at[item] = {there.size(), hints};
    there.push_back(item);
  }
  return double(hits) / double(trace.counted);
}

Trace Epochs(uint64_t items, int epochs, bool shuffled) {
  Trace trace;
  Rng rng(3);
  std::vector<uint64_t> order(items);
  for (uint64_t i = 0; i < items; ++i) order[i] = i;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (uint64_t i = items - 1; shuffled && i > 0; --i) std::swap(order[i], order[rng.Below(i + 1)]);
    trace.items.insert(trace.items.end(), order.begin(), order.end());
  }
  trace.counted = items * static_cast<uint64_t>(epochs - 1);
  return trace;
}

TEST(Eviction, IsNearTheOptimumAndFarFromLru) {
  constexpr uint64_t kItems = 4000;
  for (const bool shuffled : {true, false}) {
    const Trace trace = Epochs(kItems, 5, shuffled);
    for (const uint64_t percent : {10, 25, 50, 75}) {
      const size_t capacity = kItems * percent / 100;
      const double best = Optimum(trace, capacity);
      EXPECT_GE(Ours(trace, capacity, kItems), 0.97 * best) << percent << " % " << shuffled;
      EXPECT_GT(best, 1.3 * Lru(trace, capacity)) << percent << " % " << shuffled;
    }
  }
}

}  // namespace
}  // namespace millrace
