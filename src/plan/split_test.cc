#include "plan/split.h"

#include <cstdint>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

/// The part that takes the key, -1 for none; each key is taken by one part at most.
int PartOf(const std::vector<KeyRange>& parts, const std::string& key) {
  int taken = -1;
  for (size_t part = 0; part < parts.size(); ++part) {
    if (!parts[part].Takes(key)) continue;
    EXPECT_EQ(taken, -1) << key;
    taken = static_cast<int>(part);
  }
  return taken;
}

TEST(SplitKeys, DealsKeysByTheirFractions) {
  constexpr int kKeys = 100'000;
  const std::vector<KeyRange> parts = *SplitKeys(std::vector{0.7, 0.2, 0.05}, 3);
  std::vector<int> counts(4, 0);
  for (int i = 0; i < kKeys; ++i) ++counts[static_cast<size_t>(PartOf(parts, fmt::format("cat/{:05}", i)) + 1)];
  EXPECT_NEAR(counts[0], 0.05 * kKeys, 300);
  EXPECT_NEAR(counts[1], 0.7 * kKeys, 600);
  EXPECT_NEAR(counts[2], 0.2 * kKeys, 600);
  EXPECT_NEAR(counts[3], 0.05 * kKeys, 300);
}

TEST(SplitKeys, FractionsOfOneTakeEverything) {
  for (const std::vector<double>& fractions :
       std::vector<std::vector<double>>{{1}, {0.9, 0.1}, {0.1, 0.2, 0.3, 0.4}, {1.0 / 3, 1.0 / 3, 1.0 / 3}}) {
    const std::vector<KeyRange> parts = *SplitKeys(fractions, 1);
    EXPECT_EQ(parts.front().first, 0u);
    EXPECT_EQ(parts.back().last, UINT64_MAX);
    for (size_t i = 1; i < parts.size(); ++i) EXPECT_EQ(parts[i].first, parts[i - 1].last + 1);
  }
}

TEST(SplitKeys, ALargerFirstPartHoldsTheSmallerOne) {
  const KeyRange small = SplitKeys(std::vector{0.8, 0.2}, 9)->front();
  const KeyRange large = SplitKeys(std::vector{0.9, 0.1}, 9)->front();
  for (int i = 0; i < 1000; ++i) {
    const std::string key = std::to_string(i);
    EXPECT_LE(small.Takes(key), large.Takes(key));
  }
}

TEST(SplitKeys, SeedsAreUnrelated) {
  const KeyRange a = SplitKeys(std::vector{0.5}, 0)->front();
  const KeyRange b = SplitKeys(std::vector{0.5}, 1)->front();
  int both = 0;
  for (int i = 0; i < 10'000; ++i) both += a.Takes(std::to_string(i)) && b.Takes(std::to_string(i)) ? 1 : 0;
  EXPECT_NEAR(both, 2500, 250);
}

/// The part that a key belongs to is a promise: a validation set must not leak into training with the next release.
TEST(SplitKeys, IsFrozen) {
  const std::vector<KeyRange> parts = *SplitKeys(std::vector{0.9, 0.1}, 0);
  EXPECT_EQ(parts[0].last, 0xe666666666666800u - 1);
  std::string found;
  for (int i = 0; i < 40; ++i) found += PartOf(parts, fmt::format("n01440764/{}", i)) == 0 ? 't' : 'v';
  EXPECT_EQ(found, "tttttttttttttvtttttvtttttttttttttttttttt");
}

TEST(SplitKeys, RefusesWhatIsNoSplit) {
  for (const std::vector<double>& fractions :
       std::vector<std::vector<double>>{{0}, {-0.1}, {0.5, 0.6}, {1.1}, {NAN}, {INFINITY}, {1, 1e-12}, {1e-30}}) {
    const absl::Status status = SplitKeys(fractions, 0).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("split"));
  }
}

}  // namespace
}  // namespace millrace
