#include "plan/stages.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "base/rng.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

uint64_t BytesOf(const std::vector<uint64_t>& sizes, const std::vector<uint64_t>& shards) {
  uint64_t bytes = 0;
  for (const uint64_t shard : shards) bytes += sizes[shard];
  return bytes;
}

TEST(Stages, HaveEachShardOnce) {
  Rng rng(3);
  for (uint64_t n = 0; n < 400; n += 1 + n / 20) {
    std::vector<uint64_t> sizes(n);
    for (uint64_t& size : sizes) size = rng.Below(600) * kMiB;
    const Stages stages(sizes, n);
    std::multiset<uint64_t> all;
    for (uint64_t stage = 0; stage < stages.size(); ++stage) {
      const std::vector<uint64_t>& shards = stages.ShardsOf(stage);
      EXPECT_FALSE(shards.empty());
      EXPECT_TRUE(std::is_sorted(shards.begin(), shards.end()));
      all.insert(shards.begin(), shards.end());
    }
    std::vector<uint64_t> expected(n);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_TRUE(std::equal(all.begin(), all.end(), expected.begin(), expected.end())) << n;
  }
}

TEST(Stages, DoubleFrom256MiB) {
  const std::vector<uint64_t> sizes(100, 100 * kMiB);
  const Stages stages(sizes, 7);
  std::vector<uint64_t> counts;
  for (uint64_t stage = 0; stage < stages.size(); ++stage) counts.push_back(stages.ShardsOf(stage).size());
  EXPECT_EQ(counts, (std::vector<uint64_t>{3, 6, 12, 24, 48, 7}));
}

TEST(Stages, TheFirstHasOneShardAtLeastAnd64AtMost) {
  EXPECT_EQ(Stages(std::vector<uint64_t>(9, 5000 * kMiB), 1).ShardsOf(0).size(), 1u);
  const std::vector<uint64_t> small(1000, kMiB);
  const Stages stages(small, 1);
  EXPECT_EQ(stages.ShardsOf(0).size(), 64u);
  EXPECT_EQ(stages.ShardsOf(1).size(), 128u);
}

TEST(Stages, EachNextIsAsSmallAsReachesTwiceTheBytes) {
  Rng rng(9);
  std::vector<uint64_t> sizes(3000);
  for (uint64_t& size : sizes) size = 1 + rng.Below(40 * kMiB);
  const Stages stages(sizes, 2);
  const uint64_t largest = *std::max_element(sizes.begin(), sizes.end());
  for (uint64_t stage = 1; stage + 1 < stages.size(); ++stage) {
    const uint64_t target = 2 * BytesOf(sizes, stages.ShardsOf(stage - 1));
    EXPECT_GE(BytesOf(sizes, stages.ShardsOf(stage)), target);
    EXPECT_LT(BytesOf(sizes, stages.ShardsOf(stage)), target + largest);
  }
}

TEST(Stages, FollowFromSizesAndSeedAlone) {
  const std::vector<uint64_t> sizes(64, 128 * kMiB);
  EXPECT_EQ(Stages(sizes, 5).ShardsOf(0), Stages(sizes, 5).ShardsOf(0));
  std::set<std::vector<uint64_t>> firsts;
  for (uint64_t seed = 0; seed < 20; ++seed) firsts.insert(Stages(sizes, seed).ShardsOf(0));
  EXPECT_GT(firsts.size(), 15u);
}

// Any change here moves samples: positions of staged loaders would lead elsewhere.
TEST(Stages, AreFrozen) {
  const std::vector<uint64_t> sizes(12, 200 * kMiB);
  const Stages stages(sizes, 42);
  ASSERT_EQ(stages.size(), 3u);
  const ListedShard shards[] = {{"a.tar", 1, "x"}, {"b.tar", 2, "y"}};
  EXPECT_EQ(stages.ShardsOf(0), (std::vector<uint64_t>{3, 8}));
  EXPECT_EQ(stages.ShardsOf(1), (std::vector<uint64_t>{0, 4, 5, 7}));
  EXPECT_EQ(ListingFingerprint(shards), 1610930192853053267u);
  EXPECT_EQ(StagedFingerprint(1, Shuffle::kWindow, {}, 2), 3052802373505027660u);
}

TEST(ListingFingerprint, CoversKeysSizesAndETags) {
  const std::vector<ListedShard> listing = {{"a.tar", 10, "x"}, {"b.tar", 20, "y"}};
  const uint64_t fingerprint = ListingFingerprint(listing);
  std::set<uint64_t> all = {fingerprint};
  for (const ListedShard& other : {ListedShard{"c.tar", 20, "y"}, {"b.tar", 21, "y"}, {"b.tar", 20, "z"}}) {
    std::vector<ListedShard> changed = listing;
    changed[1] = other;
    all.insert(ListingFingerprint(changed));
  }
  all.insert(ListingFingerprint(std::span(listing).first(1)));
  all.insert(ListingFingerprint({}));
  EXPECT_EQ(all.size(), 6u);
}

TEST(StagedFingerprint, CoversThePolicyWhereItMatters) {
  std::set<uint64_t> all;
  all.insert(StagedFingerprint(1, Shuffle::kWindow, {}, 2));
  all.insert(StagedFingerprint(3, Shuffle::kWindow, {}, 2));
  all.insert(StagedFingerprint(1, Shuffle::kWindow, {}, 4));
  all.insert(StagedFingerprint(1, Shuffle::kWindow, {.extent = 4}, 2));
  all.insert(StagedFingerprint(1, Shuffle::kWindow, {.window = 64}, 2));
  all.insert(StagedFingerprint(1, Shuffle::kWindow, {.lanes = 64}, 2));
  all.insert(StagedFingerprint(1, Shuffle::kGlobal, {}, 2));
  all.insert(StagedFingerprint(1, Shuffle::kNone, {}, 2));
  EXPECT_EQ(all.size(), 8u);
  EXPECT_EQ(StagedFingerprint(1, Shuffle::kGlobal, {.extent = 4}, 2), StagedFingerprint(1, Shuffle::kGlobal, {}, 2));
}

}  // namespace
}  // namespace millrace
