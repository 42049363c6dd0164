#include "mount/order_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// "k7" and so on, in a mixed order that is the same each time.
std::vector<std::string> Mixed(size_t count) {
  std::vector<std::string> keys;
  for (size_t i = 0; i < count; ++i) keys.push_back(fmt::format("k{}", i));
  Rng rng(count);
  for (size_t i = count; i > 1; --i) std::swap(keys[i - 1], keys[rng.Below(i)]);
  return keys;
}

std::string Text(const std::vector<std::string>& keys) {
  return fmt::format("{}\n", fmt::join(keys, "\n"));
}

TEST(OrderFile, TheFirstFilesAreReadAtOnce) {
  OrderFile order("b\r\n\na\nc\nb\nd", "p/", 3);
  EXPECT_THAT(order.TakeWanted(), ElementsAre("p/b", "p/a", "p/c"));
  EXPECT_THAT(order.TakeWanted(), IsEmpty());
  EXPECT_TRUE(order.OnOpen("p/b"));
  EXPECT_THAT(order.TakeWanted(), ElementsAre("p/b"));
  EXPECT_FALSE(order.OnOpen("b"));
  EXPECT_FALSE(order.OnOpen("p/e"));
  EXPECT_TRUE(order.OnOpen("p/b"));  // its second place
  EXPECT_THAT(order.TakeWanted(), ElementsAre("p/d"));
}

TEST(OrderFile, AnEmptyOneIsNone) {
  OrderFile order("", "", 3);
  EXPECT_THAT(order.TakeWanted(), IsEmpty());
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(order.OnOpen("a"));
}

TEST(OrderFile, EachPlaceComesOnceAndBeforeItIsOpened) {
  const std::vector<std::string> keys = Mixed(20'000);
  const std::string text = Text(keys);
  OrderFile order(text, "", 100);
  Rng rng(3);
  std::set<std::string> read;
  for (size_t i = 0; i < keys.size(); ++i) {
    for (const std::string& key : order.TakeWanted()) ASSERT_TRUE(read.insert(key).second) << key;
    ASSERT_TRUE(read.contains(keys[i])) << i;
    // Another process is up to 500 files behind.
    ASSERT_TRUE(order.OnOpen(keys[i - std::min<size_t>(i, rng.Below(500))]));
    ASSERT_TRUE(order.OnOpen(keys[i]));
  }
  EXPECT_EQ(read.size(), keys.size());
  EXPECT_EQ(order.searches(), 0u);
}

TEST(OrderFile, AProgramThatGoesOnElsewhereIsFound) {
  const std::vector<std::string> keys = Mixed(50'000);
  const std::string text = Text(keys);
  OrderFile order(text, "", 10);
  for (size_t i = 40'000; i < 40'010; ++i) order.OnOpen(keys[i]);
  EXPECT_EQ(order.searches(), 1u);
  EXPECT_EQ(order.TakeWanted().back(), keys[40'019]);
  // The program is back at the beginning: a second epoch.
  for (size_t i = 0; i < 10; ++i) order.OnOpen(keys[i]);
  EXPECT_EQ(order.searches(), 2u);
  EXPECT_EQ(order.TakeWanted().back(), keys[19]);
}

TEST(OrderFile, ASecondEpochOfASmallOneIsFollowed) {
  for (const size_t count : {8, 100, 3000}) {
    const std::vector<std::string> keys = Mixed(count);
    const std::string text = Text(keys);
    OrderFile order(text, "", 20);
    for (int epoch = 0; epoch < 3; ++epoch) {
      std::set<std::string> read;
      for (const std::string& key : keys) {
        for (const std::string& wanted : order.TakeWanted()) read.insert(wanted);
        ASSERT_TRUE(order.OnOpen(key));
      }
      // The first files of a pass show that it is one.
      EXPECT_GE(read.size() + (epoch == 0 ? 0 : 8), count) << epoch;
    }
  }
}

TEST(OrderFile, ProgramsThatDoNotKeepToItCostLittle) {
  const std::vector<std::string> keys = Mixed(10'000);
  const std::string text = Text(keys);
  OrderFile order(text, "", 100);
  size_t read = 0;
  Rng rng(4);
  for (int i = 0; i < 10'000; ++i) {
    order.OnOpen(fmt::format("k{}", rng.Below(10'000)));
    read += order.TakeWanted().size();
  }
  EXPECT_LE(read, 3000u);
}

TEST(OrderFile, FilesThatAreInNoLineCostFewSearches) {
  const std::string text = Text(Mixed(1000));
  OrderFile order(text, "", 10);
  for (int i = 0; i < 10'000; ++i) EXPECT_FALSE(order.OnOpen(fmt::format("x{}", i)));
  EXPECT_LE(order.searches(), 20u);
}

}  // namespace
}  // namespace millrace
