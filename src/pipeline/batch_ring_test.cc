#include "pipeline/batch_ring.h"

#include <gtest/gtest.h>

#include <thread>

namespace millrace {
namespace {

TEST(BatchRing, GivesFreshSlotsUpToItsBoundAndUsesThemAgain) {
  int returned = 0;
  BatchRing ring(4096, 2, Reservation(), [&] { ++returned; });
  auto a = ring.TryAcquire();
  auto b = ring.TryAcquire();
  ASSERT_NE(a, nullptr);
  ASSERT_NE(b, nullptr);
  EXPECT_NE(a->data(), b->data());
  EXPECT_EQ(ring.TryAcquire(), nullptr);
  const std::byte* const memory = a->data();
  auto copy = a;
  a = nullptr;
  EXPECT_EQ(ring.TryAcquire(), nullptr);  // a copy still holds it
  copy = nullptr;
  EXPECT_EQ(returned, 1);
  EXPECT_EQ(ring.TryAcquire()->data(), memory);
}

TEST(BatchRing, NoTwoSlotsShareAPage) {
  BatchRing ring(5000, 8, Reservation(), [] {});
  std::vector<std::shared_ptr<MutableByteSpan>> slots;
  for (int i = 0; i < 8; ++i) {
    slots.push_back(ring.TryAcquire());
    ASSERT_NE(slots.back(), nullptr);
    EXPECT_EQ(slots.back()->size(), 8192u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(slots.back()->data()) % 4096, 0u);
  }
}

TEST(BatchRing, SlotsOutliveTheRingAndKeepTheBudget) {
  MemoryBudget budget(8192);
  std::shared_ptr<MutableByteSpan> kept;
  {
    BatchRing ring(4096, 2, budget.TryReserve(8192), [] { FAIL() << "the ring is gone when the slot returns"; });
    kept = ring.TryAcquire();
  }
  (*kept)[4095] = std::byte{1};
  EXPECT_EQ(budget.used(), 8192u);
  kept = nullptr;
  EXPECT_EQ(budget.used(), 0u);
}

TEST(BatchRing, SlotsMayReturnWhileTheRingDies) {
  for (int i = 0; i < 200; ++i) {
    std::atomic<int> calls{0};
    auto ring = std::make_unique<BatchRing>(64, 4, Reservation(), [&] { ++calls; });
    auto slot = ring->TryAcquire();
    std::thread other([slot = std::move(slot)]() mutable { slot = nullptr; });
    ring.reset();  // waits for a call in flight; none comes afterwards
    const int after = calls;
    other.join();
    EXPECT_EQ(calls, after);
  }
}

}  // namespace
}  // namespace millrace
