#include "mount/inode_table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"

namespace millrace {
namespace {

TEST(InodeTable, ANumberStandsForAVersionAsLongAsTheKernelKnowsIt) {
  InodeTable table("p/");
  EXPECT_EQ(table.Find(InodeTable::kRoot)->key, "p/");
  const uint64_t file = table.Remember({.key = "p/a", .size = 1, .etag = "1"});
  const uint64_t folder = table.Remember({.key = "p/a/"});
  EXPECT_NE(file, folder);
  EXPECT_EQ(table.Remember({.key = "p/a", .size = 1, .etag = "1"}), file);
  table.Forget(file, 1);
  EXPECT_TRUE(table.Find(file).has_value());
  table.Forget(file, 1);
  EXPECT_FALSE(table.Find(file).has_value());
  // Never used again: who holds the old number must not see another file.
  EXPECT_GT(table.Remember({.key = "p/a", .size = 1, .etag = "1"}), folder);
}

TEST(InodeTable, AnotherVersionHasAnotherNumber) {
  InodeTable table("");
  const uint64_t old = table.Remember({.key = "a", .size = 1, .etag = "1"});
  const uint64_t now = table.Remember({.key = "a", .size = 1, .etag = "2"});
  EXPECT_NE(old, now);
  EXPECT_EQ(table.Find(old)->etag, "1");
  EXPECT_FALSE(table.Renew(old, {.key = "a", .size = 1, .etag = "2"}));
  EXPECT_TRUE(table.Renew(now, {.key = "a", .size = 1, .etag = "2"}));
  // The newest stays findable by its key, whichever is forgotten first.
  table.Forget(old, 1);
  EXPECT_EQ(table.Remember({.key = "a", .size = 1, .etag = "2"}), now);
  EXPECT_EQ(table.size(), 2u);
}

TEST(InodeTable, TheRootStays) {
  InodeTable table("");
  table.Forget(InodeTable::kRoot, 100);
  EXPECT_TRUE(table.Find(InodeTable::kRoot)->is_folder());
}

TEST(InodeTable, WhatWasForgottenIsNotRenewed) {
  InodeTable table("");
  const uint64_t inode = table.Remember({.key = "a"});
  table.Forget(inode, 1);
  EXPECT_FALSE(table.Renew(inode, {.key = "a"}));
  EXPECT_FALSE(table.Find(inode).has_value());
  EXPECT_EQ(table.size(), 1u);
}

TEST(InodeTable, AVersionIsItsEtagNotTheTimeThatIsToldOfIt) {
  InodeTable table("");
  const uint64_t inode = table.Remember({.key = "a", .size = 1, .modified_ms = 1234, .etag = "1"});
  EXPECT_TRUE(table.Renew(inode, {.key = "a", .size = 1, .modified_ms = 1000, .etag = "1"}));
  EXPECT_EQ(table.Remember({.key = "a", .size = 1, .modified_ms = 1000, .etag = "1"}), inode);
  // Without an ETag there is nothing else.
  const uint64_t plain = table.Remember({.key = "b", .size = 1, .modified_ms = 1234});
  EXPECT_NE(table.Remember({.key = "b", .size = 1, .modified_ms = 1000}), plain);
}

TEST(InodeTable, ANumberFollowsTheFileThatWasWrittenOrRenamed) {
  InodeTable table("");
  const uint64_t inode = table.Remember({.key = "a"});
  table.Assign(inode, {.key = "a", .size = 5, .etag = "1"});
  EXPECT_EQ(table.Remember({.key = "a", .size = 5, .etag = "1"}), inode);
  const uint64_t replaced = table.Remember({.key = "b", .size = 1, .etag = "2"});
  table.Assign(inode, {.key = "b", .size = 5, .etag = "1"});
  EXPECT_EQ(table.NumberOf("a"), 0u);
  EXPECT_EQ(table.NumberOf("b"), inode);
  EXPECT_EQ(table.Find(replaced)->etag, "2");
  table.Forget(replaced, 1);
  EXPECT_EQ(table.NumberOf("b"), inode);
  table.Assign(999, {.key = "c"});
  EXPECT_EQ(table.NumberOf("c"), 0u);
  EXPECT_TRUE(table.TellAgain(inode));
  EXPECT_FALSE(table.TellAgain(replaced));
}

TEST(InodeTable, WhatIsOutdatedIsAskedAgain) {
  InodeTable table("");
  const auto later = std::chrono::steady_clock::now() + std::chrono::hours(1);
  const uint64_t inode = table.Remember({.key = "a", .etag = "1", .fresh_until = later});
  table.Outdate("b");
  EXPECT_EQ(table.Find(inode)->fresh_until, later);
  table.Outdate("a");
  EXPECT_LT(table.Find(inode)->fresh_until, later);
}

// Compares the table with a model: the numbers that the kernel got, and how often.
TEST(InodeTable, FollowsTheKernelInAnyOrder) {
  Rng rng(7);
  InodeTable table("");
  std::map<uint64_t, std::pair<std::string, uint64_t>> told;
  for (int step = 0; step < 20'000; ++step) {
    if (rng.Below(2) == 0) {
      const std::string key = fmt::format("k{}", rng.Below(50));
      const uint64_t inode = table.Remember({.key = key, .size = rng.Below(3)});
      auto& [known, times] = told[inode];
      ASSERT_TRUE(times == 0 || known == key);
      known = key;
      ++times;
    } else if (!told.empty()) {
      const auto at = std::next(told.begin(), static_cast<std::ptrdiff_t>(rng.Below(told.size())));
      const uint64_t times = 1 + rng.Below(at->second.second);
      table.Forget(at->first, times);
      at->second.second -= times;
      if (at->second.second == 0) told.erase(at);
    }
    ASSERT_EQ(table.size(), told.size() + 1);
  }
  for (const auto& [inode, known] : told) EXPECT_EQ(table.Find(inode)->key, known.first);
}

TEST(InodeTable, ANameThatIsGoneGetsAnotherNumber) {
  InodeTable table("");
  const Node node{.key = "a", .size = 1, .etag = "e"};
  const uint64_t before = table.Remember(node);
  table.Unname("a");
  EXPECT_EQ(table.NumberOf("a"), 0u);
  EXPECT_EQ(table.Find(before)->key, "a");  // programs have it open
  const uint64_t after = table.Remember(node);
  EXPECT_NE(after, before);
  table.Forget(before, 1);
  EXPECT_EQ(table.NumberOf("a"), after);
}

TEST(InodeTable, WhatLiesInAFolderMovesWithIt) {
  InodeTable table("");
  const uint64_t folder = table.Remember({.key = "d/"});
  const uint64_t below = table.Remember({.key = "d/e/"});
  const uint64_t other = table.Remember({.key = "da/"});
  table.MoveFolder("d/", "x/y/");
  EXPECT_EQ(table.Find(folder)->key, "x/y/");
  EXPECT_EQ(table.Find(below)->key, "x/y/e/");
  EXPECT_EQ(table.NumberOf("x/y/e/"), below);
  EXPECT_EQ(table.NumberOf("d/e/"), 0u);
  EXPECT_EQ(table.Find(other)->key, "da/");
}

}  // namespace
}  // namespace millrace
