#include "pipeline/batch_outlet.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

constexpr uint64_t kSlots = 2;

// Provides an outlet and its owner, which counts the calls of hooks.
class BatchOutletTest : public ::testing::Test {
 protected:
  // Makes the n-th batch, in a slot.
  Batch MakeBatch(uint64_t n) {
    Batch batch;
    batch.valid = 1;
    batch.position.consumed = n + 1;
    batch.memory = outlet_.ring().TryAcquire();
    EXPECT_NE(batch.memory, nullptr);
    return batch;
  }
  void Put(uint64_t n) {
    Batch batch = MakeBatch(n);
    const std::lock_guard lock(mutex_);
    outlet_.Put(std::move(batch));
  }
  void End(const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    outlet_.End(status);
  }
  std::optional<BatchOutlet::Time> WaitingSince() {
    const std::lock_guard lock(mutex_);
    return outlet_.waiting_since();
  }
  Batch Take() {
    absl::StatusOr<std::optional<Batch>> next = outlet_.Next();
    EXPECT_TRUE(next.ok() && *next) << next.status();
    return next.ok() && *next ? **std::move(next) : Batch();
  }
  double SecondsOf(StallCause cause) const { return outlet_.report().stalls.seconds[static_cast<size_t>(cause)]; }

  std::mutex mutex_;
  StallCause cause_ = StallCause::kDecode;
  std::vector<uint64_t> taken_;
  int returned_ = 0;
  std::vector<bool> waits_;  // what waiting_since() was at each change
  BatchOutlet outlet_{mutex_,
                      {.slot_bytes = 4096,
                       .slots = kSlots,
                       .budget = "memory budget of 1 GiB",
                       .parts = 1,
                       .start = Position{.epoch = 3}},
                      Reservation(),
                      {.cause = [this] { return cause_; },
                       .taken = [this](const Batch& batch) { taken_.push_back(batch.position.consumed); },
                       .returned = [this] { ++returned_; },
                       .waits = [this] { waits_.push_back(outlet_.waiting_since().has_value()); }}};
};

TEST_F(BatchOutletTest, GivesBatchesInOrderAndThenTheEndForever) {
  EXPECT_EQ(outlet_.report().position.epoch, 3u);
  Put(0);
  Put(1);
  End(absl::OkStatus());
  EXPECT_EQ(outlet_.untaken(), 2u);
  EXPECT_EQ(Take().position.consumed, 1u);
  EXPECT_EQ(Take().position.consumed, 2u);
  EXPECT_EQ(taken_, (std::vector<uint64_t>{1, 2}));
  for (int i = 0; i < 2; ++i) {
    const absl::StatusOr<std::optional<Batch>> none = outlet_.Next();
    EXPECT_TRUE(none.ok() && !*none);
  }
  EXPECT_EQ(outlet_.report().samples, 2u);
  EXPECT_EQ(outlet_.report().position.consumed, 2u);
}

TEST_F(BatchOutletTest, AFailureComesAfterTheBatchesBeforeItAndStays) {
  Put(0);
  End(absl::DataLossError("damaged"));
  EXPECT_TRUE(outlet_.WaitReady(milliseconds(0)));
  Take();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(outlet_.Next().status(), absl::DataLossError("damaged"));
}

TEST_F(BatchOutletTest, AConsumerThatHoldsAllSlotsMayLetSomeGo) {
  std::vector<Batch> held;
  for (uint64_t n = 0; n < kSlots; ++n) {
    Put(n);
    held.push_back(Take());
  }
  EXPECT_EQ(outlet_.unheld(), 0u);
  EXPECT_TRUE(outlet_.WaitReady(minutes(5))) << "Next does not block";
  const absl::Status refused = outlet_.Next().status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_NE(refused.message().find("all 2 batches that fit into the memory budget of 1 GiB;"), std::string::npos);
  EXPECT_EQ(returned_, 0);
  held.pop_back();
  EXPECT_EQ(returned_, 1);
  EXPECT_EQ(outlet_.unheld(), 1u);
  Put(2);
  EXPECT_EQ(Take().position.consumed, 3u);
}

TEST_F(BatchOutletTest, AWaitThatIsGivenUpGoesOnUntilABatchComes) {
  EXPECT_FALSE(WaitingSince());
  EXPECT_FALSE(outlet_.WaitReady(milliseconds(4)));
  const std::optional<BatchOutlet::Time> since = WaitingSince();
  ASSERT_TRUE(since);
  cause_ = StallCause::kBody;
  EXPECT_FALSE(outlet_.WaitReady(milliseconds(4)));
  EXPECT_EQ(WaitingSince(), since);
  Put(0);
  EXPECT_FALSE(WaitingSince()) << "there is a batch";
  Take();
  EXPECT_EQ(waits_, (std::vector<bool>{true, false}));
  const StallReport stalls = outlet_.report().stalls;
  EXPECT_GT(SecondsOf(StallCause::kDecode), 0);
  EXPECT_GT(SecondsOf(StallCause::kBody), 0);
  EXPECT_LE(stalls.waited(), stalls.elapsed);
}

TEST_F(BatchOutletTest, ABatchOrTheEndWakesTheConsumer) {
  std::thread consumer([this] {
    EXPECT_EQ(Take().position.consumed, 1u);
    EXPECT_TRUE(absl::IsCancelled(outlet_.Next().status()));
  });
  while (!WaitingSince()) std::this_thread::yield();
  Put(0);
  while (!WaitingSince()) std::this_thread::yield();
  End(absl::CancelledError());
  consumer.join();
}

TEST(BatchOutlet, ABatchMayOutliveIt) {
  std::mutex mutex;
  MemoryBudget budget(8192);
  int returned = 0;
  Batch kept;
  {
    BatchOutlet outlet(
        mutex, {.slot_bytes = 4096, .slots = kSlots, .budget = "", .parts = 1, .start = {}}, budget.TryReserve(8192),
        {.cause = [] { return StallCause::kDecode; }, .taken = [](const Batch&) {}, .returned = [&] { ++returned; }});
    for (int i = 0; i < 2; ++i) {
      Batch batch;
      batch.memory = outlet.ring().TryAcquire();
      const std::lock_guard lock(mutex);
      outlet.Put(std::move(batch));
    }
    kept = **outlet.Next();
  }
  EXPECT_EQ(returned, 1) << "of the batch that nobody has taken";
  EXPECT_EQ(budget.used(), 8192u);
  kept.memory.reset();
  EXPECT_EQ(budget.used(), 0u);
}

}  // namespace
}  // namespace millrace
