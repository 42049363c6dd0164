#include "inspect/size_counts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"

namespace millrace {
namespace {

TEST(SizeCounts, QuantilesAreWithinOnePercent) {
  Rng rng(HashKey(1, {7}));
  std::vector<uint64_t> sizes;
  SizeCounts counts;
  for (int i = 0; i < 5000; ++i) {
    sizes.push_back(rng.Next() >> rng.Below(60));
    counts.Add(sizes.back());
  }
  std::sort(sizes.begin(), sizes.end());
  for (const double share : {0.0, 0.01, 0.5, 0.99, 1.0}) {
    const auto exact = static_cast<double>(sizes[static_cast<size_t>(share * 4999)]);
    EXPECT_NEAR(static_cast<double>(counts.Quantile(share)), exact, 0.01 * exact) << share;
  }
  EXPECT_EQ(counts.min(), sizes.front());
  EXPECT_EQ(counts.max(), sizes.back());
}

TEST(SizeCounts, BinsArePowersOfTwo) {
  SizeCounts counts;
  for (const uint64_t size : {0, 1, 2, 3, 4, 1023, 1024}) counts.Add(size);
  const std::map<int, uint64_t> expected = {{0, 1}, {1, 1}, {2, 2}, {3, 1}, {10, 1}, {11, 1}};
  EXPECT_EQ(counts.Bins(), expected);
  EXPECT_DOUBLE_EQ(counts.mean(), 2057.0 / 7);
}

}  // namespace
}  // namespace millrace
