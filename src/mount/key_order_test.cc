#include "mount/key_order.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/rng.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Time = KeyOrder::Time;
using std::chrono::milliseconds;

// Holds a store's keys, which are listed in pages of ten, and a clock that the test moves.
class KeyOrderTest : public ::testing::Test {
 protected:
  static constexpr size_t kPage = 10;

  explicit KeyOrderTest(int count = 100) {
    for (int i = 0; i < count; ++i) keys_.insert(Key(i));
  }
  static std::string Key(int i) { return fmt::format("d/{:04}", i); }

  void Answer(KeyOrder& order, const std::string& after) {
    std::vector<Node> files;
    for (auto at = keys_.upper_bound(after); at != keys_.end() && files.size() < kPage; ++at) {
      files.push_back({.key = *at, .size = size_, .etag = "1", .fresh_until = now_ + limits_.ttl});
    }
    ++pages_;
    order.OnPage(files, files.empty() || files.back().key == *keys_.rbegin(), now_);
  }
  void ListAll(KeyOrder& order) {
    while (const auto after = order.NextPage(now_)) Answer(order, *after);
  }
  static std::vector<std::string> Keys(const std::vector<Node>& nodes) {
    std::vector<std::string> keys;
    for (const Node& node : nodes) keys.push_back(node.key);
    return keys;
  }

  std::set<std::string> keys_;
  uint64_t size_ = 1000;
  AheadLimits limits_{.files = 20};
  Time now_ = Time() + std::chrono::hours(1);
  int pages_ = 0;
};

// As a directory bucket does it.
TEST_F(KeyOrderTest, AStoreThatKnowsNoStartIsNotListedForever) {
  KeyOrder order(Key(0), limits_);
  std::vector<Node> first;
  for (size_t i = 0; i < kPage; ++i) first.push_back({.key = Key(static_cast<int>(i)), .size = size_, .etag = "1"});
  int pages = 0;
  for (; pages < 100 && order.NextPage(now_); ++pages) order.OnPage(first, /*is_last=*/false, now_);
  EXPECT_EQ(pages, 2);
}

TEST_F(KeyOrderTest, ReadsWhatFollowsOnceAProgramGoesForward) {
  KeyOrder order(Key(5), limits_);
  ListAll(order);
  EXPECT_THAT(order.TakeWanted(), IsEmpty());  // one open is none in a row
  EXPECT_TRUE(order.OnOpen(Key(6)));
  EXPECT_THAT(order.TakeWanted(), IsEmpty());
  EXPECT_TRUE(order.OnOpen(Key(7)));
  EXPECT_THAT(Keys(order.TakeWanted()),
              ElementsAre(Key(8), Key(9), Key(10), Key(11), Key(12), Key(13), Key(14), Key(15)));
  EXPECT_TRUE(order.OnOpen(Key(8)));
  EXPECT_EQ(Keys(order.TakeWanted()).back(), Key(24));  // further the longer it lasts
}

TEST_F(KeyOrderTest, EveryFileIsReadOnceAndInTime) {
  KeyOrder order(Key(0), limits_);
  std::set<std::string> read;
  for (int i = 1; i < 100; ++i) {
    ASSERT_TRUE(i <= 10 || read.contains(Key(i))) << i;
    ListAll(order);
    ASSERT_TRUE(order.OnOpen(Key(i)));
    ListAll(order);
    for (const Node& node : order.TakeWanted()) ASSERT_TRUE(read.insert(node.key).second) << node.key;
    ASSERT_LE(read.empty() ? Key(0) : *read.rbegin(), Key(i + 20));
  }
  EXPECT_EQ(*read.rbegin(), Key(99));
  EXPECT_LE(pages_, 11);
}

TEST_F(KeyOrderTest, SeveralProcessesShareTheFiles) {
  KeyOrder order(Key(0), limits_);
  std::set<std::string> read;
  Rng rng(1);
  for (int i = 1; i < 90; ++i) {
    ListAll(order);
    order.OnOpen(Key(std::max(1, i - static_cast<int>(rng.Below(6)))));
    ListAll(order);
    for (const Node& node : order.TakeWanted()) ASSERT_TRUE(read.insert(node.key).second) << node.key;
  }
  EXPECT_GE(read.size(), 80u);
}

TEST_F(KeyOrderTest, TheFirstPageIsNotWaitedFor) {
  KeyOrder order(Key(0), limits_);
  ASSERT_EQ(order.NextPage(now_), Key(0));
  for (int i = 1; i < 15; ++i) EXPECT_TRUE(order.OnOpen(Key(i)));
  Answer(order, Key(0));
  ListAll(order);
  for (int i = 15; i < 18; ++i) EXPECT_TRUE(order.OnOpen(Key(i)));
  EXPECT_EQ(Keys(order.TakeWanted()).front(), Key(18));
}

TEST_F(KeyOrderTest, FilesTogetherHaveABound) {
  size_ = 300'000;
  limits_.bytes = 1'000'000;
  KeyOrder order(Key(0), limits_);
  for (int i = 1; i < 10; ++i) {
    ListAll(order);
    order.OnOpen(Key(i));
  }
  EXPECT_EQ(order.TakeWanted().size(), 3u);
  size_ = 1'000'000'000;  // of large ones only the beginning is
  limits_.file_bytes = 100'000;
  KeyOrder large(Key(0), limits_);
  for (int i = 1; i < 10; ++i) {
    ListAll(large);
    large.OnOpen(Key(i));
  }
  EXPECT_EQ(large.TakeWanted().size(), 10u);
}

TEST_F(KeyOrderTest, AProgramThatIsElsewhereIsNotFollowed) {
  KeyOrder order(Key(50), limits_);
  ListAll(order);
  EXPECT_FALSE(order.OnOpen("other"));
  EXPECT_FALSE(order.OnOpen(Key(3)));
  EXPECT_EQ(order.misses(), 2u);
  EXPECT_TRUE(order.OnOpen(Key(51)));
  EXPECT_EQ(order.misses(), 0u);
}

TEST_F(KeyOrderTest, APageThatFailsIsAskedForAgainAndHoldsUpNothing) {
  KeyOrder order(Key(0), limits_);
  ASSERT_EQ(order.NextPage(now_), Key(0));
  Answer(order, Key(0));
  ASSERT_EQ(order.NextPage(now_), Key(10));
  EXPECT_EQ(order.NextPage(now_), std::nullopt);  // one at a time
  order.OnFailure(now_);
  // The files that are known continue the pass.
  for (int i = 1; i < 5; ++i) EXPECT_TRUE(order.OnOpen(Key(i)));
  EXPECT_THAT(Keys(order.TakeWanted()), ElementsAre(Key(5), Key(6), Key(7), Key(8), Key(9), Key(10)));
  EXPECT_EQ(order.NextPage(now_), std::nullopt);
  for (const int step : {100, 200, 400, 800}) {
    now_ += milliseconds(step - 1);
    EXPECT_EQ(order.NextPage(now_).has_value(), false) << step;
    now_ += milliseconds(1);
    ASSERT_TRUE(order.NextPage(now_).has_value()) << step;
    order.OnFailure(now_);
  }
  now_ += std::chrono::minutes(1);
  const auto after = order.NextPage(now_);
  ASSERT_TRUE(after.has_value());
  Answer(order, *after);
  EXPECT_FALSE(order.TakeWanted().empty());
}

TEST_F(KeyOrderTest, WhatCameOrWentBetweenPagesIsSeen) {
  KeyOrder order(Key(0), limits_);
  Answer(order, *order.NextPage(now_));
  keys_.insert(Key(5) + "x");
  keys_.erase(Key(7));
  keys_.insert(Key(10) + "x");
  ListAll(order);  // goes on behind Key(10)
  EXPECT_TRUE(order.Find(Key(10) + "x", now_).has_value());
  EXPECT_TRUE(order.Find(Key(7), now_).has_value());  // as long as the listing is believed
  EXPECT_FALSE(order.Find(Key(5) + "x", now_).has_value());
  for (int i = 1; i < 4; ++i) order.OnOpen(Key(i));
  now_ += milliseconds(600);  // more than half of the time for which it is believed
  ListAll(order);
  EXPECT_TRUE(order.Find(Key(5) + "x", now_).has_value());
  EXPECT_FALSE(order.Find(Key(7), now_).has_value());
}

TEST_F(KeyOrderTest, WhatIsOldIsNotBelieved) {
  KeyOrder order(Key(0), limits_);
  ListAll(order);
  EXPECT_TRUE(order.Find(Key(5), now_).has_value());
  EXPECT_FALSE(order.Find("d", now_).has_value());
  now_ += milliseconds(1000);
  EXPECT_FALSE(order.Find(Key(5), now_).has_value());
}

TEST_F(KeyOrderTest, AFolderOfTheSameNameHidesAFile) {
  keys_ = {"d/a", "d/a-1", "d/a/x", "d/b", "d/c", "d/d/x"};
  KeyOrder order("d/", limits_);
  ListAll(order);
  EXPECT_FALSE(order.Find("d/a", now_).has_value());
  EXPECT_TRUE(order.Find("d/a-1", now_).has_value());
  EXPECT_TRUE(order.Find("d/b", now_).has_value());
  EXPECT_TRUE(order.Find("d/d/x", now_).has_value());
  // While more may follow, the last ones are not sure.
  KeyOrder unfinished("d/", limits_);
  ASSERT_TRUE(unfinished.NextPage(now_).has_value());
  unfinished.OnPage(
      {{.key = "d/y", .fresh_until = now_ + limits_.ttl}, {.key = "d/z", .fresh_until = now_ + limits_.ttl}}, false,
      now_);
  EXPECT_TRUE(unfinished.Find("d/y", now_).has_value());
  EXPECT_FALSE(unfinished.Find("d/z", now_).has_value());
}

TEST_F(KeyOrderTest, ASecondPassIsFollowed) {
  KeyOrder order(Key(0), limits_);
  for (int i = 1; i < 100; ++i) {
    ListAll(order);
    order.OnOpen(Key(i));
    order.TakeWanted();
  }
  for (int i = 40; i < 50; ++i) ASSERT_TRUE(order.OnOpen(Key(i)));
  ListAll(order);
  EXPECT_EQ(Keys(order.TakeWanted()).front(), Key(50));
}

TEST_F(KeyOrderTest, FilesAtRandomAreHardlyReadAhead) {
  keys_.clear();
  for (int i = 0; i < 2000; ++i) keys_.insert(Key(i));
  KeyOrder order(Key(0), {.files = 128});
  std::vector<Node> all;
  for (const std::string& key : keys_) all.push_back({.key = key, .size = 1});
  ASSERT_TRUE(order.NextPage(now_).has_value());
  order.OnPage(all, true, now_);
  Rng rng(5);
  size_t read = 0;
  for (int i = 0; i < 10'000; ++i) {
    order.OnOpen(Key(static_cast<int>(rng.Below(2000))));
    read += order.TakeWanted().size();
  }
  EXPECT_LE(read, 3000u);
}

TEST_F(KeyOrderTest, OnlyAPartOfTheListingIsHeld) {
  keys_.clear();
  for (int i = 0; i < 9000; ++i) keys_.insert(Key(i));
  KeyOrder order(Key(0), limits_);
  for (int i = 1; i < 9000; ++i) {
    ListAll(order);
    ASSERT_TRUE(order.OnOpen(Key(i)));
    order.TakeWanted();
    ASSERT_LT(order.known(), 400u);
  }
}

}  // namespace
}  // namespace millrace
