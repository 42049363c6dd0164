#include "service/trainer_memory.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "store/blocking.h"
#include "store/stores.h"

namespace millrace {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(TrainerMemoryTest, WhatALongWayMayHoldIsGivenUpFirst) {
  const std::vector<MemoryWish> wishes = WishesOf({.memory = 64 * kMiB,
                                                   .streams = 4,
                                                   .slot_bytes = kMiB,
                                                   .most_slots = 100,
                                                   .frame_bytes = 256 * kKiB,
                                                   .frame_values_bytes = 64 * kKiB});
  constexpr uint64_t kAhead = 16 * 4 * 64 * kKiB;
  EXPECT_EQ(wishes, (std::vector<MemoryWish>{{20, 3, 16, kAhead},
                                             {16, 3, 8, kAhead},
                                             {16, 3, 4, kAhead},
                                             {16, 3, 3, kAhead},
                                             {16, 3, 3, 0},
                                             {2, 1, 1, 0}}));
}

TEST(TrainerMemoryTest, WishesBecomeSmallerStepByStep) {
  std::mt19937_64 random(7);
  const auto up_to = [&random](uint64_t bits) { return 1 + random() % (uint64_t{1} << (1 + random() % bits)); };
  for (int i = 0; i < 10'000; ++i) {
    const MemoryFacts facts{.memory = up_to(40),
                            .streams = uint64_t{1} << random() % 7,
                            .slot_bytes = up_to(30),
                            .most_slots = 1 + up_to(8),
                            .frame_bytes = up_to(30),
                            .frame_values_bytes = up_to(20)};
    const std::vector<MemoryWish> wishes = WishesOf(facts);
    ASSERT_GE(wishes.size(), 3u);
    EXPECT_EQ(wishes.back(), (MemoryWish{2, 1, 1, 0}));
    const MemoryWish& best = wishes.front();
    EXPECT_LE(best.widest, std::max(kMaxInFlightOfStream, best.window));
    EXPECT_LE(best.widest * facts.streams, std::max(kMaxInFlight, best.window * facts.streams));
    for (size_t next = 1; next + 2 < wishes.size(); ++next) {
      const uint64_t before = wishes[next - 1].widest;
      EXPECT_GE(wishes[next].widest, std::max(best.window, before / 2));
      EXPECT_LE(wishes[next].widest, before);
    }
    EXPECT_EQ(wishes[wishes.size() - 3].widest, best.window);
  }
}

// A data set has small pictures and a large one. The test shows what a budget becomes for so many streams.
class DivideMemoryTest : public ::testing::Test {
 protected:
  DivideMemoryTest()
      : runtime_({.io_threads = 1, .cpu_threads = 1, .memory_bytes = uint64_t{1} << 30}), stores_(runtime_) {
    const Location data = *stores_.Open("mem://pictures");
    for (int i = 0; i < 40; ++i) {  // none of them is decoded
      const std::string bytes(i == 0 ? kMiB : 4 * kKiB, 'x');
      EXPECT_TRUE(PutBlocking(*data.store, fmt::format("a/{:02}.jpg", i), AsBytes(bytes)).ok());
    }
    dataset_ = *Dataset::Open(runtime_, stores_, "mem://pictures");
  }

  absl::StatusOr<TrainerMemory> Divide(uint64_t memory, uint64_t streams, const WorkerWork& work = {}) {
    absl::StatusOr<LoaderPlan> plan = Plan(memory);
    if (!plan.ok()) return plan.status();
    return DivideMemory(*dataset_, *plan, StreamSteps(*plan, streams), work);
  }
  absl::StatusOr<LoaderPlan> Plan(uint64_t memory) {
    LoaderOptions options;
    options.image.height = options.image.width = 56;
    options.batch = 8;
    options.memory_bytes = memory;
    return Settle(*dataset_, options);
  }

  Runtime runtime_;
  Stores stores_;
  std::unique_ptr<Dataset> dataset_;
};

TEST_F(DivideMemoryTest, StaysWithinTheBudgetAndGivesUpLittleByLittle) {
  bool gave_up_some = false;
  for (uint64_t streams = 1; streams <= 8; streams *= 2) {
    for (uint64_t memory = kMiB; memory < 256 * kMiB; memory += memory / 16) {
      const absl::StatusOr<TrainerMemory> shares = Divide(memory, streams);
      if (!shares.ok()) {
        EXPECT_TRUE(absl::IsResourceExhausted(shares.status())) << shares.status();
        continue;
      }
      EXPECT_LE(shares->ring + shares->of_rows() + streams * shares->local, memory);
      EXPECT_GE(shares->slots, 2u);
      EXPECT_GE(shares->window, 1u);
      EXPECT_GE(shares->widest, shares->window);
      // All frames are of this size, and one more is counted.
      const uint64_t frame = shares->frame_limit;
      EXPECT_EQ(shares->frames, (streams * (shares->widest + 1) + 1) * frame);
      const uint64_t most = std::min({memory / 4 / streams / frame, kMaxInFlightOfStream, kMaxInFlight / streams});
      gave_up_some |= shares->widest > shares->window && shares->widest < most;
    }
  }
  EXPECT_TRUE(gave_up_some) << "between a quarter of the budget and the usual window there is an eighth";
}

TEST_F(DivideMemoryTest, WhatIsSaidToBeEnoughIs) {
  int refused = 0;
  for (uint64_t memory = kMiB; memory < 64 * kMiB; memory += memory / 16) {
    for (const WorkerWork work : {WorkerWork{}, WorkerWork{.functions = true}, WorkerWork{.compress = true}}) {
      const absl::StatusOr<LoaderPlan> plan = Plan(memory);
      if (!plan.ok() || Divide(memory, 1, work).ok()) continue;
      ++refused;
      const std::optional<uint64_t> enough = EnoughMemory(*dataset_, *plan, work);
      ASSERT_TRUE(enough);
      EXPECT_GT(*enough, memory);
      EXPECT_TRUE(Divide(*enough, 1, work).ok());
      const uint64_t less = *enough - *enough / 3;
      EXPECT_TRUE(less <= memory || !Divide(less, 1, work).ok()) << "not more than is needed";
    }
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace millrace
