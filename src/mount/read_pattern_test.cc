#include "mount/read_pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/rng.h"

namespace millrace {
namespace {

constexpr uint64_t kKiB = 1 << 10;
constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kGiB = 1 << 30;

TEST(ReadPattern, AProgramThatReadsOnIsReadAheadFurtherAndFurther) {
  ReadPattern pattern(kGiB, 64 * kMiB);
  uint64_t before = 0;
  for (uint64_t offset = 0; offset < 100 * kMiB; offset += 128 * kKiB) {
    const ReadAdvice advice = pattern.OnRead(offset, offset + 128 * kKiB);
    ASSERT_TRUE(advice.in_blocks) << offset;
    EXPECT_GE(advice.until, before);
    before = advice.until;
    if (offset == kMiB) {
      EXPECT_LE(advice.until, 5 * kMiB);
    }
    if (offset == 2 * kMiB) {
      EXPECT_GE(advice.until, 6 * kMiB);
    }
    if (offset >= 40 * kMiB) {
      EXPECT_EQ(advice.until, offset + 128 * kKiB + 64 * kMiB);
      EXPECT_EQ(advice.piece_bytes, 8 * kMiB);
    }
  }
}

TEST(ReadPattern, ReadsHereAndThereAreNothingElse) {
  for (const uint64_t file : {64 * kMiB, 10 * kGiB}) {
    for (const uint64_t size : {4 * kKiB, 128 * kKiB}) {
      ReadPattern pattern(file, 64 * kMiB);
      Rng rng(size);
      int in_blocks = 0;
      for (int i = 0; i < 5000; ++i) {
        const uint64_t offset = 4096 + rng.Below(file - size - 4096);
        in_blocks += pattern.OnRead(offset, offset + size).in_blocks ? 1 : 0;
      }
      // Large reads at random may follow each other by chance, above all in a file that is read over and over.
      if (size == 4 * kKiB) {
        EXPECT_EQ(in_blocks, 0) << file;
      }
      if (size == 128 * kKiB && file > kGiB) {
        EXPECT_LE(in_blocks, 20);
      }
    }
  }
}

TEST(ReadPattern, ManyReadsInOnePlaceAreStillAtRandom) {
  ReadPattern pattern(10 * kGiB, 64 * kMiB);
  Rng rng(3);
  for (int i = 0; i < 5000; ++i) {
    const uint64_t offset = 5 * kGiB + rng.Below(4 * kMiB);
    ASSERT_FALSE(pattern.OnRead(offset, offset + 4096).in_blocks) << i;
  }
}

TEST(ReadPattern, ALargeReadSomewhereIsReadAloneAndTheOneThatFollowsIsNot) {
  ReadPattern pattern(kGiB, 64 * kMiB);
  EXPECT_FALSE(pattern.OnRead(100 * kMiB, 101 * kMiB).in_blocks);
  const ReadAdvice advice = pattern.OnRead(101 * kMiB, 102 * kMiB);
  EXPECT_TRUE(advice.in_blocks);
  EXPECT_EQ(advice.until, 104 * kMiB);
}

TEST(ReadPattern, HeadersAllAlongAFileAreReadInBlocks) {
  ReadPattern pattern(kGiB, 64 * kMiB);
  int in_blocks = 0;
  for (int i = 0; i < 200; ++i) in_blocks += pattern.OnRead(i * 100 * kKiB, i * 100 * kKiB + 4096).in_blocks ? 1 : 0;
  EXPECT_GE(in_blocks, 100);
}

TEST(ReadPattern, TheOrderOfTheKernelIsStillForward) {
  ReadPattern pattern(kGiB, 64 * kMiB);
  for (uint64_t offset = 0; offset < 20 * kMiB; offset += 512 * kKiB) {
    for (const uint64_t part : {3, 1, 0, 2}) {
      const uint64_t begin = offset + part * 128 * kKiB;
      const bool in_blocks = pattern.OnRead(begin, begin + 128 * kKiB).in_blocks;
      if (offset > kMiB) {
        EXPECT_TRUE(in_blocks) << begin;
      }
    }
  }
}

TEST(ReadPattern, SeveralThreadsReadOnEachFromAPlaceOfItsOwn) {
  ReadPattern pattern(10 * kGiB, 64 * kMiB);
  Rng rng(5);
  for (uint64_t round = 0; round < 100; ++round) {
    for (uint64_t thread = 0; thread < 7; ++thread) {
      const uint64_t offset = thread * kGiB + round * 128 * kKiB;
      const ReadAdvice advice = pattern.OnRead(offset, offset + 128 * kKiB);
      if (round > 4) {
        EXPECT_TRUE(advice.in_blocks);
        EXPECT_GT(advice.until, offset + kMiB);
      }
      // And somebody looks things up.
      if (round < 5) continue;
      const uint64_t elsewhere = 8 * kGiB + rng.Below(kGiB);
      EXPECT_FALSE(pattern.OnRead(elsewhere, elsewhere + 512).in_blocks);
    }
  }
}

// Whatever is fetched is either still ahead of some stream, or was reported as behind.
TEST(ReadPattern, WhatWasReadAheadIsLetGo) {
  constexpr uint64_t kAhead = 16 * kMiB;
  ReadPattern pattern(4 * kGiB, kAhead);
  Rng rng(7);
  std::set<uint64_t> held;  // blocks
  uint64_t offset = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (rng.Below(100) == 0) offset = rng.Below(4 * kGiB - kMiB);
    const uint64_t end = offset + 128 * kKiB;
    const ReadAdvice advice = pattern.OnRead(offset, end);
    for (const ByteRange behind : advice.behind) {
      held.erase(held.lower_bound(behind.offset / kMiB), held.lower_bound((behind.end() + kMiB - 1) / kMiB));
    }
    if (advice.in_blocks) {
      const uint64_t piece = advice.piece_bytes / kMiB;
      const uint64_t until = (std::max(end, advice.until) + kMiB - 1) / kMiB;
      for (uint64_t block = offset / kMiB; block < until || block % piece != 0; ++block) held.insert(block);
    }
    // Each stream holds the bytes ahead, a piece beyond, and those near behind.
    ASSERT_LE(held.size(), ReadPattern::kMaxStreams * (kAhead / kMiB + 2 + 4)) << i;
    offset = std::min(end, 4 * kGiB - kMiB);
  }
}

// The kernel may send its last reads in any order.
TEST(ReadPattern, AProgramThatComesToTheEndHasReadWhatIsNotBehind) {
  constexpr uint64_t kFile = 30 * kMiB + 5000;
  constexpr uint64_t kPart = 512 * kKiB;
  for (const bool in_order : {true, false}) {
    ReadPattern pattern(kFile, 16 * kMiB);
    uint64_t behind = 0;
    for (uint64_t offset = 0; offset < kFile; offset += kPart) {
      const uint64_t last = (kFile - 1) / kPart * kPart;
      const uint64_t at = in_order || offset + kPart < last ? offset : offset == last ? last - kPart : last;
      const ReadAdvice advice = pattern.OnRead(at, std::min(at + kPart, kFile));
      for (const ByteRange range : advice.behind) behind = std::max(behind, range.end());
      if (offset < last) {
        ASSERT_EQ(advice.finished.length, 0u) << at;
      }
      if (offset == last) {
        EXPECT_EQ(advice.finished, (ByteRange{behind, kFile - behind})) << in_order;
      }
    }
  }
}

TEST(ReadPattern, WhoHasReadTheEndOfASmallFileHasNotReadAllOfIt) {
  ReadPattern pattern(kMiB, 64 * kMiB);
  EXPECT_EQ(pattern.OnRead(kMiB - 64 * kKiB, kMiB).finished.length, 0u);
  EXPECT_EQ(pattern.OnRead(0, 512 * kKiB).finished.length, 0u);
  EXPECT_EQ(pattern.OnRead(512 * kKiB, kMiB - 64 * kKiB).finished, (ByteRange{0, kMiB}));
}

// One of two that read forward in one file: the other's blocks are not its.
TEST(ReadPattern, AProgramThatComesToTheEndSpeaksForItselfOnly) {
  ReadPattern pattern(kGiB, 64 * kMiB);
  ByteRange finished;
  for (uint64_t at = 0; at < 20 * kMiB; at += 512 * kKiB) {
    EXPECT_EQ(pattern.OnRead(at, at + 512 * kKiB).finished.length, 0u);
    const uint64_t far = kGiB - 20 * kMiB + at;
    finished = pattern.OnRead(far, far + 512 * kKiB).finished;
  }
  EXPECT_EQ(finished.end(), kGiB);
  EXPECT_GE(finished.offset, kGiB - 20 * kMiB);
}

TEST(ReadPattern, ASmallFileIsReadAsAWhole) {
  ReadPattern pattern(100 * kKiB, 64 * kMiB);
  const ReadAdvice advice = pattern.OnRead(50 * kKiB, 60 * kKiB);
  EXPECT_TRUE(advice.in_blocks);
  EXPECT_EQ(advice.piece_bytes, kMiB);
}

}  // namespace
}  // namespace millrace
