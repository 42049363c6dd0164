#include "base/waiting_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "base/rng.h"

namespace millrace {
namespace {

TEST(WaitingBudget, MoreThanTheLimitIsTakenAlone) {
  WaitingBudget memory(300);
  memory.Take(700);
  std::atomic<bool> taken{false};
  std::thread other([&] {
    memory.Take(10);
    taken = true;
    memory.Return(10);
  });
  EXPECT_FALSE(taken);
  memory.Return(700);
  other.join();
  EXPECT_TRUE(taken);
}

TEST(WaitingBudget, ManyAtOnceStayWithinTheLimit) {
  WaitingBudget memory(300);
  std::atomic<uint64_t> used{0};
  std::latch begin(4);
  std::vector<std::thread> threads;
  for (uint64_t number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      Rng rng(number);
      begin.arrive_and_wait();
      for (int i = 0; i < 2000; ++i) {
        const uint64_t bytes = 1 + rng.Below(350);
        memory.Take(bytes);
        EXPECT_LE(used += bytes, std::max<uint64_t>(bytes, 300));
        used -= bytes;
        memory.Return(bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  memory.Take(300);  // all of it was given back
  memory.Return(300);
}

}  // namespace
}  // namespace millrace
