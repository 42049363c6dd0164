#include "pipeline/memory_shares.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(MemoryShares, OneLoaderHasAllAndSeveralHaveEqualShares) {
  MemoryBudget budget(1024 * kMiB);
  MemoryShares shares(budget, 512 * kMiB);
  EXPECT_EQ(shares.NextShare(), 512 * kMiB);
  auto one = shares.Join(2000 * kMiB, 0);
  EXPECT_EQ(one->Grant(0), 512 * kMiB);
  EXPECT_EQ(shares.NextShare(), 256 * kMiB);
  auto other = shares.Join(2000 * kMiB, 0);
  EXPECT_EQ(one->Grant(0), 256 * kMiB);
  EXPECT_EQ(other->Grant(0), 256 * kMiB);
  EXPECT_EQ(other->members(), 2u);
  EXPECT_EQ(budget.used(), 512 * kMiB);
  one.reset();
  EXPECT_EQ(other->Grant(0), 512 * kMiB);
  other.reset();
  EXPECT_EQ(budget.used(), 0u);
}

TEST(MemoryShares, WhatOneDoesNotNeedIsForTheOthers) {
  MemoryBudget budget(1024 * kMiB);
  MemoryShares shares(budget, 512 * kMiB);
  const auto small = shares.Join(56 * kMiB, 0);
  EXPECT_EQ(budget.used(), 56 * kMiB);
  const auto one = shares.Join(2000 * kMiB, 0);
  const auto other = shares.Join(2000 * kMiB, 0);
  EXPECT_EQ(small->Grant(0), 56 * kMiB);
  EXPECT_EQ(one->Grant(0), 228 * kMiB);
  EXPECT_EQ(other->Grant(0), 228 * kMiB);
}

TEST(MemoryShares, ALaterLoaderWaitsForWhatOthersStillHave) {
  MemoryBudget budget(1024 * kMiB);
  MemoryShares shares(budget, 512 * kMiB);
  const auto first = shares.Join(2000 * kMiB, 0);
  EXPECT_EQ(first->Grant(500 * kMiB), 512 * kMiB);
  const auto second = shares.Join(2000 * kMiB, 0);
  EXPECT_EQ(second->Grant(0), MemoryShares::kLeastBytes);
  EXPECT_EQ(first->Grant(400 * kMiB), 256 * kMiB);
  EXPECT_EQ(second->Grant(0), 112 * kMiB);
  EXPECT_EQ(first->Grant(250 * kMiB), 256 * kMiB);
  EXPECT_EQ(second->Grant(100 * kMiB), 256 * kMiB);
}

TEST(MemoryShares, ThereIsNoMoreThanTheProcessHas) {
  MemoryBudget budget(100 * kMiB);
  MemoryShares shares(budget, 512 * kMiB);
  EXPECT_EQ(shares.bytes(), 100 * kMiB);
  const Reservation batches = budget.TryReserve(25 * kMiB);
  const auto joined = shares.Join(2000 * kMiB, 25 * kMiB);
  ASSERT_NE(joined, nullptr);
  EXPECT_EQ(budget.used(), 100 * kMiB);
  MemoryShares more(budget, 10 * kMiB);
  EXPECT_EQ(more.Join(5 * kMiB, 0), nullptr);
}

}  // namespace
}  // namespace millrace
