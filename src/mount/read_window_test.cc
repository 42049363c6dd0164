#include "mount/read_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "mount/testing/large_file_fixture.h"
#include "store/blocking.h"
#include "store/memory_store.h"

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
  // The budgets come before the store, which waits for its requests: what those hold is given back until then.
  MemoryBudget memory_{256 << 20};
  MemoryBudget little_{300 << 10};
  MemoryStore below_{"data"};
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
  BlockTier tier(below_, little_, 0);
  ReadWindow window({below_, little_, tier, around_, room_}, node_);
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

// A block that a program has requested itself is not requested again: the store has done what it can.
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
