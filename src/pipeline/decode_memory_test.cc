#include "pipeline/decode_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "base/rng.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

TEST(DecodeMemory, ComesFromTheProcessAndGoesBack) {
  MemoryBudget process(1000);
  DecodeMemory memory(process, 300);
  ASSERT_TRUE(memory.Take(100).ok());
  ASSERT_TRUE(memory.Take(200).ok());
  EXPECT_EQ(process.used(), 300u);
  memory.Return(200);
  memory.Return(100);
  EXPECT_EQ(process.used(), 0u);
}

TEST(DecodeMemory, AnImageAboveTheLimitIsDecodedAlone) {
  MemoryBudget process(1000);
  DecodeMemory memory(process, 300);
  ASSERT_TRUE(memory.Take(700).ok());
  std::atomic<bool> granted{false};
  std::thread other([&] {
    EXPECT_TRUE(memory.Take(10).ok());
    granted = true;
    memory.Return(10);
  });
  EXPECT_FALSE(granted);
  EXPECT_EQ(process.used(), 700u);
  memory.Return(700);
  other.join();
  EXPECT_TRUE(granted);
  EXPECT_EQ(process.used(), 0u);
}

TEST(DecodeMemory, WhatTheProcessHasNotIsRefused) {
  MemoryBudget process(1000);
  const Reservation others = process.TryReserve(600);
  DecodeMemory memory(process, 300);
  const absl::Status refused = memory.Take(500);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("baseline JPEG"));
  EXPECT_TRUE(memory.Take(400).ok());
  memory.Return(400);
}

TEST(DecodeMemory, ManyAtOnceStayWithinTheLimit) {
  MemoryBudget process(1000);
  DecodeMemory memory(process, 300);
  std::atomic<uint64_t> used{0};
  std::latch begin(4);
  std::vector<std::thread> threads;
  for (uint64_t number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      Rng rng(number);
      begin.arrive_and_wait();
      for (int i = 0; i < 2000; ++i) {
        const uint64_t bytes = 1 + rng.Below(250);
        ASSERT_TRUE(memory.Take(bytes).ok());
        EXPECT_LE(used += bytes, 300u);
        used -= bytes;
        memory.Return(bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(process.used(), 0u);
}

}  // namespace
}  // namespace millrace
