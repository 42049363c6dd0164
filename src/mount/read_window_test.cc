#include "mount/read_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/rng.h"
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

  static Patience NoHurry() { return {std::chrono::steady_clock::now() + std::chrono::minutes(1), {}}; }
  bool Same(ReadWindow& window, uint64_t offset, size_t size) {
    std::string into(size, '?');
    const absl::StatusOr<size_t> count = window.Read(offset, AsWritableBytes(into), NoHurry());
    if (!count.ok()) return false;
    into.resize(*count);
    return into == (offset < text_.size() ? text_.substr(offset, size) : "");
  }

  // The callback of a request may still be going when the read that waited for it has returned.
  bool AllIsGivenBack() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (memory_.used() != 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    return memory_.used() == 0;
  }

  std::string text_;
  MemoryStore below_{"data"};
  MemoryBudget memory_{256 << 20};
  BlockTier tier_{below_, memory_, 32 << 20};
  Node node_;
};

TEST_F(ReadWindowTest, ReadsFromBeginningToEndAreReadAheadInBlocks) {
  ReadWindow window(below_, memory_, tier_, node_);
  for (uint64_t offset = 0; offset < text_.size(); offset += 128 << 10) ASSERT_TRUE(Same(window, offset, 128 << 10));
  EXPECT_EQ(below_.counters().get, 10u);  // a block each, and not one for each read
  EXPECT_TRUE(Same(window, text_.size(), 10));
  EXPECT_TRUE(Same(window, text_.size() - 3, 10));
}

TEST_F(ReadWindowTest, TheKernelsOrderIsStillSequential) {
  ReadWindow window(below_, memory_, tier_, node_);
  for (uint64_t offset = 0; offset + (256 << 10) < text_.size(); offset += 256 << 10) {
    ASSERT_TRUE(Same(window, offset + (128 << 10), 128 << 10));
    ASSERT_TRUE(Same(window, offset, 128 << 10));
  }
  EXPECT_LE(below_.counters().get, 12u);
}

TEST_F(ReadWindowTest, ReadsHereAndThereAskForTheirBytesOnly) {
  ReadWindow window(below_, memory_, tier_, node_);
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
  ReadWindow window(below_, memory_, tier_, node_);
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
  ReadWindow window(below_, memory_, tier_, node_);
  ASSERT_TRUE(Same(window, 0, 4096));
  ASSERT_TRUE(PutBlocking(below_, "k", AsBytes(std::string(text_.size(), 'n'))).ok());
  std::string into(4096, '?');
  EXPECT_TRUE(absl::IsFailedPrecondition(window.Read(8 << 20, AsWritableBytes(into), NoHurry()).status()));
  EXPECT_EQ(into, std::string(4096, '?'));
}

TEST_F(ReadWindowTest, WithoutMemoryNothingIsReadAhead) {
  MemoryBudget little(300 << 10);
  BlockTier tier(below_, little, 0);
  ReadWindow window(below_, little, tier, node_);
  for (uint64_t offset = 0; offset < (2 << 20); offset += 128 << 10) ASSERT_TRUE(Same(window, offset, 128 << 10));
  std::string into(1 << 20, '?');
  EXPECT_TRUE(absl::IsResourceExhausted(window.Read(5 << 20, AsWritableBytes(into), NoHurry()).status()));
}

TEST_F(ReadWindowTest, ProgramsThatReadTheSameShareTheRequests) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      ReadWindow window(below_, memory_, tier_, node_);
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
    ReadWindow window(below_, memory_, tier_, node_);
    ASSERT_TRUE(Same(window, 0, 600 << 10));
    ASSERT_TRUE(Same(window, 600 << 10, 600 << 10));
  }
}

}  // namespace
}  // namespace millrace
