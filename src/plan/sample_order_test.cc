#include "plan/sample_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace millrace {
namespace {

using ::testing::ElementsAre;

TEST(SampleOrder, ShuffledIsAPermutationOfItsSeed) {
  for (const uint64_t count : {1, 2, 100, 1000}) {
    const SampleOrder a = SampleOrder::Shuffled(count, 1), b = SampleOrder::Shuffled(count, 2);
    std::set<uint64_t> seen;
    uint64_t same = 0;
    for (uint64_t p = 0; p < count; ++p) {
      EXPECT_EQ(a.At(p), SampleOrder::Shuffled(count, 1).At(p));
      seen.insert(a.At(p));
      same += a.At(p) == b.At(p) ? 1 : 0;
    }
    EXPECT_EQ(seen.size(), count);
    EXPECT_EQ(*seen.rbegin(), count - 1);
    if (count >= 100) {
      EXPECT_LT(same, 20u);
    }
  }
}

TEST(SampleOrder, SpreadTakesTheMiddleOfEqualParts) {
  std::vector<uint64_t> found;
  for (uint64_t p = 0; p < 4; ++p) found.push_back(SampleOrder::Spread(100, 4).At(p));
  EXPECT_THAT(found, ElementsAre(12, 37, 62, 87));
  for (const uint64_t samples : {1, 7, 1000}) {
    for (uint64_t count = 1; count <= samples; count += 3) {
      const SampleOrder order = SampleOrder::Spread(samples, count);
      EXPECT_EQ(order.size(), count);
      for (uint64_t p = 0; p + 1 < count; ++p) ASSERT_LT(order.At(p), order.At(p + 1));
      ASSERT_LT(order.At(count - 1), samples);
    }
  }
  EXPECT_EQ(SampleOrder::Spread(50, 50).At(17), 17u);
  EXPECT_EQ(SampleOrder::Spread(uint64_t{1} << 60, uint64_t{1} << 50).At(5), 5632u) << "without overflow";
}

// Golden: the same seed gives the same shards in every version.
TEST(SampleOrder, TheShuffleNeverChanges) {
  const SampleOrder order = SampleOrder::Shuffled(10, 42);
  std::vector<uint64_t> found;
  for (uint64_t p = 0; p < 10; ++p) found.push_back(order.At(p));
  EXPECT_THAT(found, ElementsAre(3, 1, 7, 0, 9, 6, 8, 2, 5, 4));
}

}  // namespace
}  // namespace millrace
