#include "mount/read_surplus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "base/rng.h"

namespace millrace {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uint64_t kOneKiB = 1 << 10;
constexpr uint64_t kOneMiB = 1 << 20;
constexpr uint64_t kOneGiB = 1 << 30;

struct SurplusOutcome {
  uint64_t misses = 0;
  uint64_t surplus = 0;  // bytes
  uint64_t largest = 0;
};

/// Describes a program that reads at random from a store.
struct Reads {
  uint64_t file = 0;
  uint64_t part = 0;  // of the file, from its beginning on
  uint64_t size = 0;
  ReadSurplus::Time latency{};
  uint64_t bytes_per_second = kOneGiB;
  int count = 0;
};

// All surplus is kept.
SurplusOutcome Simulate(ReadSurplus& surplus, const Reads& reads) {
  Rng rng(3);
  std::set<uint64_t> blocks;
  std::set<uint64_t> used;  // of them
  SurplusOutcome outcome;
  for (int i = 0; i < reads.count; ++i) {
    const uint64_t number = rng.Below(reads.part) / kOneMiB;
    if (blocks.contains(number)) {
      if (used.insert(number).second) surplus.OnHit();
      continue;
    }
    ++outcome.misses;
    if (surplus.WantsRoom()) surplus.OnRoom();
    const uint64_t file_blocks = reads.file / kOneMiB;
    for (uint64_t around = number; surplus.Piece() > 0;) {
      const uint64_t piece = surplus.Piece() / kOneMiB;
      const uint64_t begin = around / piece * piece;
      uint64_t fetched = 0;
      for (uint64_t block = begin; block < std::min(begin + piece, file_blocks); ++block) {
        fetched += blocks.insert(block).second ? kOneMiB : 0;
      }
      if (fetched == 0) break;
      surplus.OnFetch(fetched);
      surplus.OnArrival(fetched, reads.latency + microseconds(fetched * 1'000'000 / reads.bytes_per_second), 1);
      outcome.surplus += fetched;
      outcome.largest = std::max(outcome.largest, fetched);
      if (!surplus.is_kept()) break;
      while (blocks.contains(around) && around + 1 < file_blocks) ++around;
    }
    surplus.OnMiss(reads.size, reads.latency);
  }
  return outcome;
}

TEST(ReadSurplus, AFileThatIsReadAtRandomOverAndOverIsSoonThere) {
  ReadSurplus surplus(kOneGiB, kOneGiB);
  const SurplusOutcome outcome = Simulate(surplus, {.file = kOneGiB,
                                                    .part = kOneGiB,
                                                    .size = 4 * kOneKiB,
                                                    .latency = milliseconds(30),
                                                    .bytes_per_second = kOneGiB,
                                                    .count = 2000});
  EXPECT_LE(outcome.misses, 50u);
  EXPECT_LE(outcome.surplus, kOneGiB);
  EXPECT_EQ(outcome.largest, 8 * kOneMiB);
}

// Who never reads what was fetched waits twice as long at most.
TEST(ReadSurplus, WhatIsTransferredTakesNoLongerThanWhatWasWaitedFor) {
  for (const uint64_t rate : {2 * kOneMiB, 20 * kOneMiB, 200 * kOneMiB}) {
    ReadSurplus surplus(kOneGiB, kOneGiB);
    uint64_t fetched = 0;
    constexpr int kReads = 400;
    for (int i = 0; i < kReads; ++i) {
      if (surplus.WantsRoom()) surplus.OnRoom();
      while (const uint64_t piece = surplus.Piece()) {
        surplus.OnFetch(piece);
        surplus.OnArrival(piece, milliseconds(30) + microseconds(piece * 1'000'000 / rate), 1);
        fetched += piece;
      }
      surplus.OnMiss(kOneKiB, milliseconds(30));
    }
    // It begins by a guess.
    EXPECT_LE(fetched, rate * kReads * 30 / 1000 + 16 * kOneMiB) << rate;
    EXPECT_GE(fetched, std::min(kOneGiB, rate * kReads * 30 / 1000) / 2) << rate;
  }
}

TEST(ReadSurplus, AFewReadsAreNothingMore) {
  ReadSurplus surplus(kOneGiB, kOneGiB);
  for (uint64_t i = 0; i <= ReadSurplus::kFirstReads; ++i) {
    EXPECT_EQ(surplus.WantsRoom(), i == ReadSurplus::kFirstReads);
    EXPECT_EQ(surplus.Piece(), 0u);
    surplus.OnMiss(4 * kOneKiB, milliseconds(30));
  }
  ReadSurplus larger(kOneGiB + 1, kOneGiB);
  for (int i = 0; i < 100; ++i) larger.OnMiss(4 * kOneKiB, milliseconds(30));
  EXPECT_FALSE(larger.WantsRoom());
}

TEST(ReadSurplus, WhereRequestsAreQuickNoTimeIsBought) {
  ReadSurplus surplus(kOneGiB, kOneGiB);
  const SurplusOutcome outcome = Simulate(
      surplus, {.file = kOneGiB, .part = kOneGiB, .size = 4 * kOneKiB, .latency = microseconds(300), .count = 2000});
  EXPECT_LE(outcome.surplus, 2000 * 2 * 4 * kOneKiB);
}

TEST(ReadSurplus, OfAHugeFileAtMostTwiceIsReadUnlessThatIsUsed) {
  constexpr uint64_t kHuge = 100'000 * kOneGiB;
  for (const uint64_t size : {4 * kOneKiB, 128 * kOneKiB}) {
    ReadSurplus surplus(kHuge, kOneGiB);
    const SurplusOutcome outcome =
        Simulate(surplus, {.file = kHuge, .part = kHuge, .size = size, .latency = milliseconds(30), .count = 5000});
    EXPECT_LE(outcome.surplus, outcome.misses * size + 4 * ReadSurplus::kProvenBytes) << size;
    EXPECT_GE(outcome.surplus, kOneMiB) << "it is tried";
  }
  // The same reads now fall into one place of the file.
  ReadSurplus surplus(kHuge, kOneGiB);
  const SurplusOutcome outcome = Simulate(
      surplus,
      {.file = kHuge, .part = 100 * kOneMiB, .size = 128 * kOneKiB, .latency = milliseconds(30), .count = 5000});
  EXPECT_LE(outcome.misses, 200u);
}

TEST(ReadSurplus, WhatIsNeverUsedIsFetchedOnce) {
  constexpr uint64_t kFile = 128 * kOneMiB;
  ReadSurplus surplus(kFile, kOneGiB);
  uint64_t fetched = 0;
  for (int i = 0; i < 5000; ++i) {
    if (surplus.WantsRoom()) surplus.OnRoom();
    const uint64_t piece = surplus.Piece();
    surplus.OnFetch(piece);
    fetched += piece;
    surplus.OnMiss(512, std::chrono::hours(1));
  }
  EXPECT_GE(fetched, kFile);
  EXPECT_LE(fetched, kFile + ReadSurplus::kMaxCredit + 5000 * 512);
}

TEST(ReadSurplus, APieceIsWaitedForIfItComesSoonerThanAnAnswer) {
  ReadSurplus surplus(kOneGiB, kOneGiB);
  EXPECT_TRUE(surplus.ComesSooner(milliseconds(0))) << "nothing is known";
  surplus.OnMiss(4 * kOneKiB, milliseconds(30));
  EXPECT_FALSE(surplus.ComesSooner(milliseconds(29)));
  EXPECT_TRUE(surplus.ComesSooner(milliseconds(30)));
  // Many are in flight, and each takes long.
  for (int i = 0; i < 20; ++i) surplus.OnArrival(8 * kOneMiB, milliseconds(200), 16);
  EXPECT_FALSE(surplus.ComesSooner(milliseconds(160)));
  EXPECT_TRUE(surplus.ComesSooner(milliseconds(170)));
}

TEST(ReadSurplus, WhereNothingCanBeKeptThereIsNone) {
  ReadSurplus surplus(kOneMiB, 4 * kOneMiB);
  surplus.OnRoom();
  for (int i = 0; i < 100; ++i) {
    surplus.OnMiss(kOneMiB, milliseconds(30));
    surplus.OnHit();
    EXPECT_EQ(surplus.Piece(), 0u);
  }
}

}  // namespace
}  // namespace millrace
