#include "mount/written_content.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/rng.h"

namespace millrace {
namespace {

using Where = WrittenContent::Where;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RangeSet, IsWhatASetOfBytesIs) {
  constexpr uint64_t kBytes = 60;
  Rng rng(1);
  RangeSet set;
  std::vector<bool> naive(kBytes);
  for (int step = 0; step < 20'000; ++step) {
    const uint64_t begin = rng.Below(kBytes);
    const ByteRange range{begin, rng.Below(kBytes - begin + 1)};
    const bool add = rng.Below(2) == 0;
    add ? set.Add(range) : set.Remove(range);
    std::fill(naive.begin() + static_cast<ptrdiff_t>(begin), naive.begin() + static_cast<ptrdiff_t>(range.end()), add);
    const uint64_t from = rng.Below(kBytes);
    const ByteRange asked{from, rng.Below(kBytes - from + 1)};
    std::vector<ByteRange> expected;
    for (uint64_t at = asked.offset; at < asked.end(); ++at) {
      if (!naive[at]) continue;
      if (expected.empty() || expected.back().end() != at) expected.push_back({at, 0});
      ++expected.back().length;
    }
    ASSERT_EQ(set.Within(asked), expected) << step;
    uint64_t count = 0;
    for (const ByteRange& part : expected) count += part.length;
    ASSERT_EQ(set.BytesIn(asked), count);
    ASSERT_EQ(set.Contains(asked), count == asked.length);
    ASSERT_EQ(set.bytes(), static_cast<uint64_t>(std::count(naive.begin(), naive.end(), true)));
  }
}

/// Models the same with plain texts: what the file is, what the base is, and where each byte of the file lies.
struct NaiveFile {
  std::string file, base, staging;
  std::vector<Where> where;

  explicit NaiveFile(std::string text) : file(text), base(std::move(text)), where(file.size(), Where::kBase) {}

  void Write(uint64_t offset, const std::string& text, bool kept) {
    if (file.size() < offset + text.size()) Resize(offset + text.size());
    if (staging.size() < file.size()) staging.resize(file.size(), '?');
    file.replace(offset, text.size(), text);
    if (kept) staging.replace(offset, text.size(), text);
    std::fill_n(where.begin() + static_cast<ptrdiff_t>(offset), text.size(), kept ? Where::kLocal : Where::kLost);
  }
  void Resize(uint64_t size) {
    file.resize(size, '\0');
    where.resize(size, Where::kZeros);
  }
};

class RandomContent : public ::testing::Test {
 protected:
  static constexpr uint64_t kMost = 200;
  static std::string Text(Rng& rng, uint64_t bytes) {
    std::string text(bytes, ' ');
    for (char& c : text) c = static_cast<char>('a' + rng.Below(26));
    return text;
  }

  void Step(Rng& rng) {
    const uint64_t at = rng.Below(kMost);
    switch (rng.Below(8)) {
      case 0:
        naive_.Resize(at);
        content_.Truncate(at);
        break;
      case 1:
        content_.Committed();
        naive_.base = naive_.file;
        // Local bytes stay so; all else can be read from the base.
        for (Where& where : naive_.where) where = where == Where::kLocal ? where : Where::kBase;
        break;
      case 2: {
        const ByteRange range{at, rng.Below(kMost - at)};
        content_.Lose(range);
        for (uint64_t i = at; i < std::min<uint64_t>(range.end(), naive_.where.size()); ++i) {
          if (naive_.where[i] == Where::kLocal) naive_.where[i] = Where::kLost;
        }
        break;
      }
      default: {
        const std::string text = Text(rng, rng.Below(kMost - at));
        const bool kept = rng.Below(4) != 0;
        if (text.empty()) break;
        naive_.Write(at, text, kept);
        content_.Wrote({at, text.size()}, kept);
      }
    }
  }

  // Puts the file together from what Parts says of the range.
  void CheckParts(ByteRange range) {
    const uint64_t end = std::min<uint64_t>(range.end(), naive_.file.size());
    uint64_t at = range.offset;
    for (const WrittenContent::Part& part : content_.Parts(range)) {
      ASSERT_EQ(part.range.offset, at);
      ASSERT_GT(part.range.length, 0u);
      for (; at < part.range.end(); ++at) {
        ASSERT_EQ(part.where, naive_.where[at]) << at;
        if (part.where == Where::kBase) {
          ASSERT_EQ(naive_.base[at], naive_.file[at]) << at;
        }
        if (part.where == Where::kLocal) {
          ASSERT_EQ(naive_.staging[at], naive_.file[at]) << at;
        }
        if (part.where == Where::kZeros) {
          ASSERT_EQ(naive_.file[at], '\0') << at;
        }
      }
    }
    ASSERT_EQ(at, std::max(end, range.offset));
  }

  void CheckPieces(const PieceLimits& limits, uint64_t least_copied, uint64_t most_copied) {
    uint64_t at = 0;
    const auto pieces = content_.CommitPieces(limits, least_copied, most_copied);
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto& [range, copied] = pieces[i];
      ASSERT_EQ(range.offset, at);
      ASSERT_GT(range.length, 0u);
      if (i + 1 < pieces.size()) {
        ASSERT_GE(range.length, limits.least_bytes);
      }
      if (copied) {
        ASSERT_LE(range.length, most_copied);
        ASSERT_EQ(naive_.base.substr(at, range.length), naive_.file.substr(at, range.length));
      }
      at = range.end();
    }
    ASSERT_EQ(at, naive_.file.size());
  }

  NaiveFile naive_{"0123456789"};
  WrittenContent content_{10};
};

TEST_F(RandomContent, EveryByteIsWhereItSays) {
  Rng rng(2);
  bool copied = false;
  for (int step = 0; step < 30'000; ++step) {
    Step(rng);
    ASSERT_EQ(content_.size(), naive_.file.size());
    if (!content_.changed()) {
      ASSERT_EQ(naive_.file, naive_.base);
    }
    ASSERT_EQ(content_.has_lost(), std::count(naive_.where.begin(), naive_.where.end(), Where::kLost) > 0);
    const uint64_t from = rng.Below(kMost);
    ASSERT_NO_FATAL_FAILURE(CheckParts({from, rng.Below(kMost)})) << step;
    ASSERT_NO_FATAL_FAILURE(CheckParts({0, UINT64_MAX})) << step;
    ASSERT_NO_FATAL_FAILURE(CheckPieces({.least_bytes = 5}, 7, 20)) << step;
    for (const auto& piece : content_.CommitPieces({.least_bytes = 5}, 7, 20)) copied = copied || piece.copied;
  }
  EXPECT_TRUE(copied);
}

TEST(WrittenContent, ATailIsSentAndTheRestCopied) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  WrittenContent content(600 * kMiB);
  content.Wrote({600 * kMiB, 100}, true);
  const auto pieces = content.CommitPieces({.least_bytes = 5 * kMiB}, 5 * kMiB, 256 * kMiB);
  EXPECT_THAT(pieces, ElementsAre(WrittenContent::Piece{{0, 200 * kMiB}, true},
                                  WrittenContent::Piece{{200 * kMiB, 200 * kMiB}, true},
                                  WrittenContent::Piece{{400 * kMiB, 200 * kMiB}, true},
                                  WrittenContent::Piece{{600 * kMiB, 100}, false}));
  // If a store cannot copy, all is sent.
  for (const auto& piece : content.CommitPieces({.least_bytes = 5 * kMiB}, 0, 256 * kMiB)) EXPECT_FALSE(piece.copied);
}

TEST(WrittenContent, AChangedHeadIsLongEnoughForAPiece) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  WrittenContent content(100 * kMiB);
  content.Wrote({0, 10}, true);
  const auto pieces = content.CommitPieces({.least_bytes = 5 * kMiB}, 5 * kMiB, 256 * kMiB);
  EXPECT_THAT(pieces, ElementsAre(WrittenContent::Piece{{0, 5 * kMiB}, false},
                                  WrittenContent::Piece{{5 * kMiB, 95 * kMiB}, true}));
}

TEST(WrittenContent, WhatWasCutOffIsZerosWhenTheFileGrowsAgain) {
  WrittenContent content(10);
  content.Wrote({10, 10}, true);
  content.Truncate(5);
  content.Truncate(30);
  EXPECT_THAT(content.Parts({0, 100}),
              ElementsAre(WrittenContent::Part{Where::kBase, {0, 5}}, WrittenContent::Part{Where::kZeros, {5, 25}}));
  EXPECT_THAT(content.Parts({30, 5}), IsEmpty());
}

TEST(WrittenContent, ManyPiecesAreNotTooMany) {
  WrittenContent content;
  content.Wrote({0, uint64_t{1} << 45}, true);
  const PieceLimits limits{.least_bytes = 5 << 20, .most_pieces = 10'000};
  EXPECT_LE(content.CommitPieces(limits, 0, 0).size(), limits.most_pieces);
}

}  // namespace
}  // namespace millrace
