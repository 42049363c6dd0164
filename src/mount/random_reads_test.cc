#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "mount/read_window.h"
#include "mount/testing/large_file_fixture.h"

/// Tests reads at random of a ReadWindow: their requests, and the blocks around them.

namespace millrace {
namespace {

TEST_F(LargeFileTest, IsReadAtRandomByRequestsForJustTheBytes) {
  ReadWindow window({store_, memory_, tier_, around_, room_}, node_);
  Rng rng(9);
  uint64_t bytes = 0;
  for (int i = 0; i < 500; ++i) {
    const uint64_t size = 1 + rng.Below(64 << 10);
    bytes += window.Read(4096 + rng.Below(node_.size - 100'000), size, NoHurry())->size();
  }
  // Some reads happen to follow others.
  EXPECT_LE(store_.gets().size(), 520u);
  EXPECT_LE(RequestedBytes(), bytes + 32 * kMiB);
}

// No answer comes before all sixteen have been asked for.
TEST_F(LargeFileTest, ThreadsThatReadAtRandomDoNotWaitForEachOther) {
  constexpr int kThreads = 16;
  std::mutex mutex;
  std::vector<GetCallback> held;
  std::vector<std::thread> answers;
  store_.on_get = [&](const GetOptions&, int, const absl::AnyInvocable<void()>&, GetCallback& done) {
    std::lock_guard lock(mutex);
    held.push_back(std::move(done));
    if (held.size() < kThreads) return;
    answers.emplace_back([all = std::exchange(held, {})]() mutable {
      for (GetCallback& one : all) Answer(one);
    });
  };
  ReadWindow window({store_, memory_, tier_, around_, room_}, node_);
  std::atomic<int> read{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 5; ++i) {
        // The reads are far from one another, and none goes forward.
        const uint64_t offset = (190 - 12 * thread) * kMiB - i * 2 * kMiB + 4096;
        const absl::StatusOr<FileBytes> bytes = window.Read(offset, 4096, NoHurry());
        read += bytes.ok() && bytes->size() == 4096 ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::thread& thread : answers) thread.join();
  EXPECT_EQ(read, kThreads * 5);
  EXPECT_EQ(store_.gets().size(), kThreads * 5u);
}

// The file is larger than what is kept of surplus, so the bytes decide, and not the time.
class SurplusTest : public LargeFileTest {
 protected:
  // Returns the i-th of 190 places, each in a block of its own and far from those before it.
  static uint64_t Place(uint64_t i) { return (5 + i * 13 % 190) * kMiB + 4096; }
  uint64_t LargestRequest() const {
    uint64_t largest = 0;
    for (const GetOptions& get : store_.gets()) largest = std::max(largest, get.range.length);
    return largest;
  }

  BlockTier kept_{store_, memory_, 64 * kMiB};
  ReadWindow window_{{store_, memory_, tier_, kept_, room_}, node_};
};

TEST_F(SurplusTest, BlocksAroundReadsAtRandomAreAsManyBytesAsTheReadsAtMost) {
  constexpr uint64_t kSize = 128 << 10;
  for (uint64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(window_.Read(Place(i), kSize, NoHurry())->size(), kSize);
    ASSERT_LE(RequestedBytes(), 2 * (i + 1) * kSize) << i;
  }
  EXPECT_EQ(LargestRequest(), kMiB);
  EXPECT_GE(RequestedBytes(), 100 * kSize + 10 * kMiB);
  // Another program also finds the bytes that they brought.
  const uint64_t requests = store_.gets().size();
  ReadWindow other({store_, memory_, tier_, kept_, room_}, node_);
  int found = 0;
  for (const GetOptions& get : store_.gets()) {
    if (get.range.length != kMiB) continue;
    ++found;
    EXPECT_EQ(window_.Read(get.range.offset + 700'000, 1000, NoHurry())->size(), 1000u);
    EXPECT_EQ(other.Read(get.range.offset + 500'000, 1000, NoHurry())->size(), 1000u);
  }
  EXPECT_GE(found, 10);
  EXPECT_EQ(store_.gets().size(), requests);
}

TEST_F(SurplusTest, WhatFailedIsAskedForAgain) {
  constexpr uint64_t kSize = 128 << 10;
  std::atomic<int> failed{0};
  store_.on_get = [&](const GetOptions& get, int, const absl::AnyInvocable<void()>&, GetCallback& done) {
    if (get.range.length < kMiB || failed >= 3) return Answer(done);
    ++failed;
    std::move(done)(absl::UnavailableError("away"));
  };
  for (uint64_t i = 0; i < 60; ++i) {
    // Two reads fall into the same block.
    ASSERT_TRUE(window_.Read(Place(i), kSize, NoHurry()).ok()) << i;
    ASSERT_TRUE(window_.Read(Place(i) + kSize, 4096, NoHurry()).ok()) << i;
  }
  EXPECT_EQ(failed, 3);
}

TEST_F(SurplusTest, ItEndsWhileBlocksAreInFlight) {
  std::mutex mutex;
  std::vector<GetCallback> held;
  store_.on_get = [&](const GetOptions& get, int, const absl::AnyInvocable<void()>&, GetCallback& done) {
    if (get.range.length < kMiB) return Answer(done);
    std::lock_guard lock(mutex);
    held.push_back(std::move(done));
  };
  {
    ReadWindow window({store_, memory_, tier_, kept_, room_}, node_);
    for (uint64_t i = 0; i < 190; ++i) ASSERT_TRUE(window.Read(Place(i), 128 << 10, NoHurry()).ok());
    EXPECT_EQ(held.size(), 16u) << "and no more are asked for";
  }
  for (GetCallback& done : held) std::move(done)(absl::CancelledError("stopped"));
}

// No more is in flight than half of what is kept.
TEST_F(SurplusTest, WhatIsInFlightWouldBeKept) {
  std::vector<GetCallback> held;
  uint64_t bytes = 0;
  store_.on_get = [&](const GetOptions& get, int, const absl::AnyInvocable<void()>&, GetCallback& done) {
    if (get.range.length < kMiB) return Answer(done);
    bytes += get.range.length;
    held.push_back(std::move(done));
  };
  BlockTier little(store_, memory_, 8 * kMiB);
  {
    ReadWindow window({store_, memory_, tier_, little, room_}, node_);
    for (uint64_t i = 0; i < 190; ++i) ASSERT_TRUE(window.Read(Place(i), 128 << 10, NoHurry()).ok());
  }
  EXPECT_EQ(bytes, 4 * kMiB);
  for (GetCallback& done : held) std::move(done)(absl::CancelledError("stopped"));
}

// The file has room among what is kept, and each small read takes 30 ms of the test's own clock; large ones are as
// quick as can be.
class KeptFileTest : public LargeFileTest {
 protected:
  KeptFileTest() {
    store_.on_get = [this](const GetOptions& get, int, const absl::AnyInvocable<void()>&, GetCallback& done) {
      if (get.range.length < kMiB) now_ += std::chrono::milliseconds(30);
      Answer(done);
    };
  }
  uint64_t Place() { return 4096 * (1 + rng_.Below(node_.size / 4096 - 1)); }
  void ReadSome(ReadWindow& window, int times) {
    for (int i = 0; i < times; ++i) ASSERT_EQ(window.Read(Place(), 4096, NoHurry())->size(), 4096u);
  }
  uint64_t SmallRequests() const {
    const std::vector<GetOptions> gets = store_.gets();
    return std::ranges::count_if(gets, [](const GetOptions& get) { return get.range.length < kMiB; });
  }
  void ReadForward(ReadWindow& window) {
    for (uint64_t offset = 0; offset < node_.size; offset += 512 << 10) {
      ASSERT_EQ(window.Read(offset, 512 << 10, NoHurry())->size(), 512u << 10);
    }
  }

  Rng rng_{12};
  BlockTier::TimePoint now_{};
  BlockTier little_{store_, memory_, 16 * kMiB};
  BlockTier kept_{store_, memory_, 256 * kMiB, [this] { return now_; }};
  MemoryBudget kept_room_{256 * kMiB};
  const ReadWindow::Shared shared_{store_, memory_, little_, kept_, kept_room_};
};

TEST_F(KeptFileTest, AFewReadsAtRandomAreNothingMore) {
  ReadWindow window(shared_, node_);
  ReadSome(window, 5);
  EXPECT_EQ(store_.gets().size(), 5u);
  EXPECT_EQ(RequestedBytes(), 5u * 4096);
}

TEST_F(KeptFileTest, IsSoonThereWhenItIsReadAtRandomAndEachByteOnce) {
  ReadWindow window(shared_, node_);
  ReadSome(window, 500);
  const size_t requests = store_.gets().size();
  EXPECT_LE(SmallRequests(), 20u);
  EXPECT_EQ(RequestedBytes(), node_.size + SmallRequests() * 4096);
  // Any program can read the file in any order, without a request.
  ReadSome(window, 500);
  ReadForward(window);
  ReadWindow other(shared_, node_);
  ReadSome(other, 500);
  EXPECT_EQ(store_.gets().size(), requests);
}

// Worker processes open the file again that their parent has open: there is room for the file only once.
TEST_F(KeptFileTest, AllThatHaveItOpenHaveTheSameRoom) {
  ReadWindow idle(shared_, node_);
  ReadSome(idle, 6);
  ASSERT_EQ(kept_room_.used(), node_.size);
  {
    ReadWindow window(shared_, node_);
    ReadSome(window, 500);
    EXPECT_LE(SmallRequests(), 26u);
  }
  EXPECT_EQ(kept_room_.used(), node_.size);
}

// Credit is also spent when a program finds its bytes, but one block says nothing of the others.
TEST_F(KeptFileTest, ABlockThatIsReadOverAndOverSpeaksForItselfOnly) {
  ReadWindow window(shared_, node_);
  uint64_t there = 0;
  for (uint64_t i = 0; there == 0; ++i) {
    ASSERT_LT(i, 20u);
    const uint64_t place = (5 + i * 13 % 190) * kMiB + 4096;
    ASSERT_TRUE(window.Read(place, 4096, NoHurry()).ok());
    if (store_.gets().size() > i + 1) there = place;
  }
  const uint64_t before = RequestedBytes();
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(window.Read(there + 4096 * (i % 7), 4096, NoHurry()).ok());
  EXPECT_GT(RequestedBytes(), before);
  EXPECT_LE(RequestedBytes(), before + 8 * kMiB);
}

// A block that is about to come is waited for; if it fails, that is no error of the read.
TEST_F(KeptFileTest, AReadWaitsForABlockThatComesSooner) {
  std::vector<GetCallback> held;
  store_.on_get = [&](const GetOptions& get, int, const absl::AnyInvocable<void()>&, GetCallback& done) {
    if (get.range.length >= kMiB) return held.push_back(std::move(done));
    now_ += std::chrono::milliseconds(30);
    Answer(done);
  };
  ReadWindow window(shared_, node_);
  uint64_t place = 4096;
  while (held.empty()) {
    place += 13 * kMiB;
    ASSERT_LT(place, 190 * kMiB);
    ASSERT_TRUE(window.Read(place, 4096, NoHurry()).ok());
  }
  const auto requests = SmallRequests();
  Patience none = NoHurry();
  none.deadline = {};
  EXPECT_TRUE(absl::IsDeadlineExceeded(window.Read(place + 8192, 4096, none).status()));
  EXPECT_EQ(SmallRequests(), requests);
  // It fails while a read waits.
  std::thread answer;
  Patience waits = NoHurry();
  waits.interrupted = [&] {
    if (answer.joinable()) return false;
    answer = std::thread([&] {
      GetCallback done = std::move(held.front());  // what comes after the answer may ask for more
      std::move(done)(absl::UnavailableError("away"));
    });
    return false;
  };
  EXPECT_EQ(window.Read(place + 8192, 4096, waits)->size(), 4096u);
  answer.join();
  EXPECT_EQ(SmallRequests(), requests + 1);
  for (size_t i = 1; i < held.size(); ++i) std::move(held[i])(absl::CancelledError("stopped"));
}

TEST_F(KeptFileTest, PastTheKernelsCacheWhatIsReadForwardIsKept) {
  for (int i = 0; i < 3; ++i) {
    ReadWindow window(shared_, node_, ReadWindow::Kernel::kKeepsNothing);
    ReadForward(window);
    EXPECT_EQ(RequestedBytes(), node_.size) << i;
  }
}

TEST_F(KeptFileTest, WithoutRoomOrIfTheKernelKeepsItNothingIs) {
  for (const bool has_room : {true, false}) {
    const ReadWindow::Shared shared{store_, memory_, little_, kept_, has_room ? kept_room_ : room_};
    ReadWindow window(shared, node_, has_room ? ReadWindow::Kernel::kKeeps : ReadWindow::Kernel::kKeepsNothing);
    ReadForward(window);
  }
  EXPECT_GE(RequestedBytes(), 2 * node_.size - 32 * kMiB);
  EXPECT_EQ(kept_.bytes(), 0u);
}

}  // namespace
}  // namespace millrace
