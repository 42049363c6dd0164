#include "mount/inode_table.h"

#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"

namespace millrace {
namespace {

TEST(InodeTable, ANumberStandsForAKeyAsLongAsTheKernelKnowsIt) {
  InodeTable table("p/");
  EXPECT_EQ(table.Find(InodeTable::kRoot)->key, "p/");
  const uint64_t file = table.Remember({.key = "p/a", .size = 1, .etag = "1"});
  const uint64_t folder = table.Remember({.key = "p/a/"});
  EXPECT_NE(file, folder);
  EXPECT_EQ(table.Remember({.key = "p/a", .size = 2, .etag = "2"}), file);
  EXPECT_EQ(table.Find(file)->size, 2u);
  table.Forget(file, 1);
  EXPECT_TRUE(table.Find(file).has_value());
  table.Forget(file, 1);
  EXPECT_FALSE(table.Find(file).has_value());
  // Never used again: who holds the old number must not see another file.
  EXPECT_GT(table.Remember({.key = "p/a"}), folder);
}

TEST(InodeTable, TheRootStays) {
  InodeTable table("");
  table.Forget(InodeTable::kRoot, 100);
  EXPECT_TRUE(table.Find(InodeTable::kRoot)->is_folder());
}

TEST(InodeTable, WhatWasForgottenIsNotUpdated) {
  InodeTable table("");
  const uint64_t inode = table.Remember({.key = "a"});
  table.Forget(inode, 1);
  table.Update(inode, {.key = "a", .size = 5});
  EXPECT_FALSE(table.Find(inode).has_value());
  EXPECT_EQ(table.size(), 1u);
}

// Against a model: what the kernel was told, and how often.
TEST(InodeTable, FollowsTheKernelInAnyOrder) {
  Rng rng(7);
  InodeTable table("");
  std::map<uint64_t, std::pair<std::string, uint64_t>> told;
  for (int step = 0; step < 20'000; ++step) {
    if (rng.Below(2) == 0) {
      const std::string key = "k" + std::to_string(rng.Below(50));
      const uint64_t inode = table.Remember({.key = key, .size = rng.Below(1000)});
      auto& [known, times] = told[inode];
      if (times > 0) ASSERT_EQ(known, key);
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

}  // namespace
}  // namespace millrace
