#include "mount/read_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "store/blocking.h"
#include "store/memory_store.h"
#include "store/testing/scripted_store.h"

namespace millrace {
namespace {

class ReadWindowTest : public ::testing::Test {
 protected:
  explicit ReadWindowTest(size_t size = (9 << 20) + 123) : text_(size, '\0') {
    Rng rng(1);
    for (char& c : text_) c = static_cast<char>(rng.Below(256));
    node_.key = "k";
    node_.size = size;
    node_.etag = PutBlocking(below_, "k", AsBytes(text_))->etag;
  }

  static Patience NoHurry() { return {std::chrono::steady_clock::now() + std::chrono::minutes(5), {}}; }
  bool Same(ReadWindow& window, uint64_t offset, size_t size) {
    const absl::StatusOr<FileBytes> bytes = window.Read(offset, size, NoHurry());
    return bytes.ok() && TextOf(*bytes) == (offset < text_.size() ? text_.substr(offset, size) : "");
  }
  static std::string TextOf(const FileBytes& bytes) {
    std::string text;
    for (const ByteSpan part : bytes.parts) text += AsText(part);
    EXPECT_EQ(text.size(), bytes.size());
    return text;
  }

  // The callback of a request may still be going when the read that waited for it has returned.
  bool AllIsGivenBack() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(5);
    while (memory_.used() != 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    return memory_.used() == 0;
  }

  std::string text_;
  MemoryStore below_{"data"};
  MemoryBudget memory_{256 << 20};
  BlockTier tier_{below_, memory_, 32 << 20};
  BlockTier around_{below_, memory_, 0};
  MemoryBudget room_{0};
  Node node_;
};

TEST_F(ReadWindowTest, ReadsFromBeginningToEndAreReadAheadInBlocks) {
  ReadWindow window({below_, memory_, tier_, around_, room_}, node_);
  for (uint64_t offset = 0; offset < text_.size(); offset += 128 << 10) ASSERT_TRUE(Same(window, offset, 128 << 10));
  EXPECT_EQ(below_.counters().get, 10u);  // a block each, and not one for each read
  EXPECT_TRUE(Same(window, text_.size(), 10));
  EXPECT_TRUE(Same(window, text_.size() - 3, 10));
}

TEST_F(ReadWindowTest, TheKernelsOrderIsStillSequential) {
  ReadWindow window({below_, memory_, tier_, around_, room_}, node_);
  for (uint64_t offset = 0; offset + (256 << 10) < text_.size(); offset += 256 << 10) {
    ASSERT_TRUE(Same(window, offset + (128 << 10), 128 << 10));
    ASSERT_TRUE(Same(window, offset, 128 << 10));
  }
  EXPECT_LE(below_.counters().get, 12u);
}

TEST_F(ReadWindowTest, ReadsHereAndThereAskForTheirBytesOnly) {
  ReadWindow window({below_, memory_, tier_, around_, room_}, node_);
  Rng rng(5);
  uint64_t last = 0;
  int reads = 0;
  while (reads < 50) {
    const uint64_t offset = (3 << 20) + rng.Below(6 << 20);
    if (offset < last + (3 << 20) && offset + (3 << 20) > last) continue;  // these are near
    ASSERT_TRUE(Same(window, offset, 4096));
    last = offset;
    ++reads;
  }
  EXPECT_EQ(below_.counters().get, 50u);
  EXPECT_TRUE(AllIsGivenBack());
}

TEST_F(ReadWindowTest, ThreadsMayReadAnywhereAtOnce) {
  ReadWindow window({below_, memory_, tier_, around_, room_}, node_);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 16; ++thread) {
    threads.emplace_back([&, thread] {
      Rng rng(thread);
      for (int i = 0; i < 40; ++i) {
        const uint64_t offset = thread < 4 ? uint64_t(i) * (200 << 10) : rng.Below(text_.size());
        wrong += Same(window, offset, 1 + rng.Below(300 << 10)) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(ReadWindowTest, WhatWasReplacedIsNotRead) {
  ReadWindow window({below_, memory_, tier_, around_, room_}, node_);
  ASSERT_TRUE(Same(window, 0, 4096));
  ASSERT_TRUE(PutBlocking(below_, "k", AsBytes(std::string(text_.size(), 'n'))).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(window.Read(8 << 20, 4096, NoHurry()).status()));
}

TEST_F(ReadWindowTest, WithoutMemoryNothingIsReadAhead) {
  MemoryBudget little(300 << 10);
  BlockTier tier(below_, little, 0);
  ReadWindow window({below_, little, tier, around_, room_}, node_);
  for (uint64_t offset = 0; offset < (2 << 20); offset += 128 << 10) ASSERT_TRUE(Same(window, offset, 128 << 10));
  EXPECT_TRUE(absl::IsResourceExhausted(window.Read(5 << 20, 1 << 20, NoHurry()).status()));
}

TEST_F(ReadWindowTest, ProgramsThatReadTheSameShareTheRequests) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      ReadWindow window({below_, memory_, tier_, around_, room_}, node_);
      for (uint64_t offset = 0; offset < text_.size(); offset += 128 << 10) {
        wrong += Same(window, offset, 128 << 10) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(below_.counters().get, 10u);
}

TEST_F(ReadWindowTest, ItEndsWhileItReadsAhead) {
  for (int i = 0; i < 20; ++i) {
    ReadWindow window({below_, memory_, tier_, around_, room_}, node_);
    ASSERT_TRUE(Same(window, 0, 600 << 10));
    ASSERT_TRUE(Same(window, 600 << 10, 600 << 10));
  }
}

TEST_F(ReadWindowTest, BytesOutliveTheWindow) {
  absl::StatusOr<FileBytes> ahead = absl::UnknownError("");
  absl::StatusOr<FileBytes> alone = absl::UnknownError("");
  {
    ReadWindow window({below_, memory_, tier_, around_, room_}, node_);
    ahead = window.Read((1 << 20) - 10, 20, NoHurry());
    alone = window.Read(5 << 20, 100, NoHurry());
  }
  EXPECT_EQ(TextOf(*ahead), text_.substr((1 << 20) - 10, 20));
  EXPECT_EQ(TextOf(*alone), text_.substr(5 << 20, 100));
}

/// A file of 200 MiB without contents that matter: which requests are made for it?
class LargeFileTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kMiB = 1 << 20;
  static constexpr char kEtag[] = "\"e\"";

  explicit LargeFileTest(uint64_t budget = uint64_t{1} << 30) : memory_(budget) {
    store_.on_get = [](const GetOptions&, int, const absl::AnyInvocable<void()>&, GetCallback& done) { Answer(done); };
  }
  static void Answer(GetCallback& done) { std::move(done)(GetResult{.etag = kEtag, .object_size = 200 * kMiB}); }
  static Patience NoHurry() { return {std::chrono::steady_clock::now() + std::chrono::minutes(5), {}}; }
  uint64_t RequestedBytes() const {
    uint64_t bytes = 0;
    for (const GetOptions& get : store_.gets()) bytes += get.range.length;
    return bytes;
  }

  ScriptedStore store_;
  MemoryBudget memory_;
  BlockTier tier_{store_, memory_, 256 << 20};
  BlockTier around_{store_, memory_, 0};
  MemoryBudget room_{0};
  const Node node_{.key = "k", .size = 200 * kMiB, .etag = kEtag};
};

TEST_F(LargeFileTest, IsReadFromBeginningToEndByFewLargeRequestsEachByteOnce) {
  ReadWindow window({store_, memory_, tier_, around_, room_}, node_);
  for (uint64_t offset = 0; offset < node_.size; offset += 512 << 10) {
    ASSERT_EQ(window.Read(offset, 512 << 10, NoHurry())->size(), 512u << 10);
  }
  const std::vector<GetOptions> gets = store_.gets();
  EXPECT_EQ(RequestedBytes(), node_.size);
  EXPECT_LE(gets.size(), 50u);
  const auto large = std::ranges::count_if(gets, [](const GetOptions& get) { return get.range.length == 8 * kMiB; });
  EXPECT_GE(large, 15);
  for (const GetOptions& get : gets) EXPECT_LE(get.range.length, 8 * kMiB);
}

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
        // Far from one another, and not forward.
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

// Each is read once, from its beginning to its end, so the kernel has it.
TEST_F(LargeFileTest, OfManyFilesThatWereReadLittleIsKept) {
  for (int i = 0; i < 100; ++i) {
    const Node node{.key = std::to_string(i), .size = kMiB - i * 3000, .etag = kEtag};
    ReadWindow window({store_, memory_, tier_, around_, room_}, node);
    ASSERT_TRUE(window.Read(0, 512 << 10, NoHurry()).ok());
    ASSERT_TRUE(window.Read(512 << 10, 512 << 10, NoHurry()).ok());
  }
  EXPECT_EQ(store_.gets().size(), 100u);
  EXPECT_LE(tier_.bytes(), 18 * kMiB);
  for (int i = 0; i < 100; ++i) {
    const Node node{.key = "b" + std::to_string(i), .size = kMiB, .etag = kEtag};
    ReadWindow window({store_, memory_, tier_, around_, room_}, node);
    ASSERT_TRUE(window.Read(0, 512 << 10, NoHurry()).ok());
  }
  EXPECT_GE(tier_.bytes(), 100 * kMiB) << "which were not read to their end";
}

// Two programs read forward at two places of one file, and one of them comes to the end: what was read ahead for the
// other one was not read yet.
TEST_F(LargeFileTest, AProgramThatComesToTheEndUsesUpItsOwnBlocksOnly) {
  const uint64_t part = 512 << 10;
  const auto read = [part](ReadWindow& window, uint64_t from, uint64_t until) {
    for (; from < until; from += part) ASSERT_EQ(window.Read(from, part, NoHurry())->size(), part);
  };
  {
    ReadWindow window({store_, memory_, tier_, around_, room_}, node_);
    read(window, 0, 16 * kMiB);
    read(window, 180 * kMiB, node_.size);
  }
  const Node other{.key = "other", .size = 60 * kMiB, .etag = kEtag};
  {
    ReadWindow window({store_, memory_, tier_, around_, room_}, other);
    read(window, 0, other.size);
  }
  const size_t before = store_.gets().size();
  ReadWindow window({store_, memory_, tier_, around_, room_}, node_);
  read(window, 16 * kMiB, 40 * kMiB);
  const std::vector<GetOptions> gets = store_.gets();
  for (size_t i = before; i < gets.size(); ++i) EXPECT_GE(gets[i].range.offset, 40 * kMiB) << i;
}

// A program waits for what was asked for ahead of it, and that fails: it has not asked for anything itself yet.
TEST_F(LargeFileTest, WhatWasAskedForAheadAndFailsWhileAProgramWaitsIsAskedForAgain) {
  std::vector<GetCallback> held;
  bool hold = true;
  store_.on_get = [&](const GetOptions& get, int, const absl::AnyInvocable<void()>&, GetCallback& done) {
    if (get.range.offset == 0 || !hold) return Answer(done);
    held.push_back(std::move(done));
  };
  ReadWindow window({store_, memory_, tier_, around_, room_}, node_);
  ASSERT_EQ(window.Read(0, kMiB / 2, NoHurry())->size(), kMiB / 2);
  ASSERT_EQ(held.size(), 1u) << "the second block";
  std::thread failure;
  Patience waits = NoHurry();
  waits.interrupted = [&] {
    if (failure.joinable()) return false;
    hold = false;
    failure = std::thread([failing = std::exchange(held, {})]() mutable {
      for (GetCallback& done : failing) std::move(done)(absl::UnavailableError("away"));
    });
    return false;
  };
  const absl::StatusOr<FileBytes> bytes = window.Read(kMiB, kMiB / 2, waits);
  if (failure.joinable()) failure.join();
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(bytes->size(), kMiB / 2);
  EXPECT_EQ(store_.gets().back().range, (ByteRange{kMiB, kMiB / 2}));
}

// What a program has asked for itself is not asked for again: the store has done what it can.
TEST_F(LargeFileTest, WhatFailsForAProgramThatHasAskedForItIsItsError) {
  store_.on_get = [](const GetOptions&, int, const absl::AnyInvocable<void()>&, GetCallback& done) {
    std::move(done)(absl::UnavailableError("away"));
  };
  ReadWindow window({store_, memory_, tier_, around_, room_}, node_);
  EXPECT_TRUE(absl::IsUnavailable(window.Read(0, kMiB / 2, NoHurry()).status()));
  const std::vector<GetOptions> gets = store_.gets();
  EXPECT_EQ(std::ranges::count_if(gets, [](const GetOptions& get) { return get.range.offset == 0; }), 1);
}

// A request that was made ahead and failed says nothing to a program that reads those bytes later.
TEST_F(LargeFileTest, WhatFailedWhenItWasReadAheadIsAskedForAgain) {
  std::atomic<bool> away{false};
  std::atomic<int> failed{0};
  store_.on_get = [&](const GetOptions& get, int, const absl::AnyInvocable<void()>&, GetCallback& done) {
    if (!away || get.range.offset == 0) return Answer(done);
    std::move(done)(absl::UnavailableError("away"));
    ++failed;
  };
  ReadWindow window({store_, memory_, tier_, around_, room_}, node_);
  away = true;
  ASSERT_EQ(window.Read(0, 512 << 10, NoHurry())->size(), 512u << 10);
  ASSERT_GT(failed, 0);
  away = false;
  for (uint64_t offset = 512 << 10; offset < 20 * kMiB; offset += 512 << 10) {
    const absl::StatusOr<FileBytes> bytes = window.Read(offset, 512 << 10, NoHurry());
    ASSERT_TRUE(bytes.ok()) << offset << " " << bytes.status();
  }
}

// The file is larger than what is kept of surplus, so the bytes decide, and not the time.
class SurplusTest : public LargeFileTest {
 protected:
  // The i-th of 190 places, each in a block of its own and far from those before it.
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
  // What they brought is there: also to another program.
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
    // And in the same block once more.
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
  // For whoever reads it in whatever order.
  ReadSome(window, 500);
  ReadForward(window);
  ReadWindow other(shared_, node_);
  ReadSome(other, 500);
  EXPECT_EQ(store_.gets().size(), requests);
}

// As when worker processes open the file again, that their parent has open: there is room for the file only once.
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

// What was earned is spent when a program finds its bytes, too, but one block says nothing of the others.
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

class LittleMemoryTest : public LargeFileTest {
 protected:
  LittleMemoryTest() : LargeFileTest(uint64_t{16} << 20) {}
};

// Whatever others have read ahead, there is room for what a program waits for.
TEST_F(LittleMemoryTest, IsLeftForReadsThatSomebodyWaitsFor) {
  std::vector<std::unique_ptr<ReadWindow>> windows;
  for (int i = 0; i < 12; ++i) {
    const std::string key = std::to_string(i);
    const Node node{.key = key, .size = 200 * kMiB, .etag = kEtag};
    windows.push_back(std::make_unique<ReadWindow>(ReadWindow::Shared{store_, memory_, tier_, around_, room_}, node));
  }
  for (uint64_t offset = 0; offset < 8 * kMiB; offset += 128 << 10) {
    for (const auto& window : windows) {
      const absl::StatusOr<FileBytes> bytes = window->Read(offset, 128 << 10, NoHurry());
      ASSERT_TRUE(bytes.ok()) << offset << " " << bytes.status();
    }
  }
}

}  // namespace
}  // namespace millrace
