#include "cache/cache_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;

using namespace cache_format;

const CacheIdentity kIdentity{"http://127.0.0.1:9000 s3://bucket/", "train/0.tar", "0123-4"};

TEST(CacheFormat, NamesAreOfOneVersionOfOneObject) {
  const std::string name = FileName(kIdentity);
  ASSERT_EQ(name.size(), 33u);
  EXPECT_TRUE(IsFileName(name.substr(0, 2), name.substr(3)));
  EXPECT_EQ(name, FileName(CacheIdentity(kIdentity)));
  for (const CacheIdentity& other : {CacheIdentity{kIdentity.store, kIdentity.key, "0123-5"},
                                     CacheIdentity{kIdentity.store, "train/1.tar", kIdentity.etag},
                                     CacheIdentity{"s3://bucket/", kIdentity.key, kIdentity.etag},
                                     CacheIdentity{kIdentity.store + "t", "rain/0.tar", kIdentity.etag}}) {
    EXPECT_NE(FileName(other), name);
  }
}

TEST(CacheFormat, WhatIsNotOursHasAnotherName) {
  const std::string digits(30, 'a');
  EXPECT_TRUE(IsFileName("0f", digits));
  EXPECT_FALSE(IsFileName("0F", digits));
  EXPECT_FALSE(IsFileName("of", digits));
  EXPECT_FALSE(IsFileName("0f0", digits));
  EXPECT_FALSE(IsFileName("0f", digits + "a"));
  EXPECT_FALSE(IsFileName("0f", "photo.jpg"));
  EXPECT_FALSE(IsFileName("", ""));
}

TEST(CacheFormat, HeadsTellWhatTheyAreOf) {
  const auto head = EncodeHead(kIdentity, 12345);
  ASSERT_TRUE(head.ok());
  ASSERT_EQ(head->size(), kHeadBytes);
  EXPECT_EQ(*DecodeHead(AsBytes(*head), kIdentity), 12345u);
  EXPECT_TRUE(absl::IsDataLoss(DecodeHead(AsBytes(*head), {"", kIdentity.key, kIdentity.etag}).status()));
  EXPECT_TRUE(absl::IsDataLoss(DecodeHead(AsBytes(head->substr(1)), kIdentity).status()));
  EXPECT_TRUE(absl::IsDataLoss(DecodeHead({}, kIdentity).status()));
  for (size_t at = 0; at < head->size(); at += 7) {
    std::string flipped = *head;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    EXPECT_TRUE(absl::IsDataLoss(DecodeHead(AsBytes(flipped), kIdentity).status())) << at;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(EncodeHead({"", std::string(5000, 'k'), ""}, 1).status()));
}

TEST(CacheFormat, RecordsAreWholeOrNothing) {
  const CachedSpan span{{100, 50}, 0x12345678};
  const std::string record = EncodeRecord(span);
  ASSERT_EQ(record.size(), kRecordBytes);
  EXPECT_EQ(DecodeRecord(AsBytes(record), 150), span);
  EXPECT_EQ(DecodeRecord(AsBytes(record), 149), std::nullopt) << "it is not about this object";
  EXPECT_EQ(DecodeRecord(AsBytes(EncodeRecord({{UINT64_MAX, 2}, 0})), UINT64_MAX), std::nullopt);
  EXPECT_EQ(DecodeRecord(AsBytes(std::string(kRecordBytes, '\0')), 150), std::nullopt) << "a hole in the file";
  for (size_t at = 0; at < record.size(); ++at) {
    std::string flipped = record;
    flipped[at] = static_cast<char>(flipped[at] ^ 64);
    EXPECT_EQ(DecodeRecord(AsBytes(flipped), 150), std::nullopt) << at;
  }
}

TEST(CacheFormat, RecordsLieBehindTheData) {
  EXPECT_EQ(RecordsAt(0), 4096u);
  EXPECT_EQ(RecordsAt(1), 8192u);
  EXPECT_EQ(RecordsAt(4096), 8192u);
  EXPECT_EQ(RecordsAt(4097), 12288u);
}

// Against a map of bytes.
TEST(CachedSpans, AreWhatAMapOfBytesSays) {
  constexpr uint64_t kBytes = 64;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    CachedSpans spans;
    std::vector<int> owner(kBytes, -1);  // the number of the span that has the byte
    std::vector<CachedSpan> all;
    for (int i = 0; i < 40; ++i) {
      const uint64_t offset = rng.Next() % kBytes;
      const ByteRange range{offset, 1 + rng.Next() % std::min<uint64_t>(12, kBytes - offset)};
      if (rng.Next() % 8 == 0) {
        spans.RemoveTouching(range);
        std::vector<int> gone;
        for (uint64_t at = range.offset; at < range.end(); ++at) gone.push_back(owner[at]);
        for (int& who : owner) {
          if (who >= 0 && std::find(gone.begin(), gone.end(), who) != gone.end()) who = -1;
        }
      } else {
        const CachedSpan span{range, static_cast<uint32_t>(rng.Next())};
        bool free = true;
        bool same = false;
        for (uint64_t at = range.offset; at < range.end(); ++at) {
          free = free && owner[at] < 0;
          same = same || (owner[at] >= 0 && all[static_cast<size_t>(owner[at])].range == range);
        }
        EXPECT_EQ(spans.Add(span), free || same);
        if (free || same) {
          all.push_back(span);
          for (uint64_t at = range.offset; at < range.end(); ++at) owner[at] = static_cast<int>(all.size()) - 1;
        }
      }
      const ByteRange asked{rng.Next() % kBytes, 1 + rng.Next() % 20};
      std::vector<bool> missing(kBytes + 20, false);
      for (const ByteRange& part : spans.Missing(asked)) {
        for (uint64_t at = part.offset; at < part.end(); ++at) missing[at] = true;
      }
      bool covered = true;
      for (uint64_t at = asked.offset; at < asked.end(); ++at) {
        const bool has = at < kBytes && owner[at] >= 0;
        EXPECT_EQ(missing[at], !has) << at;
        covered = covered && has;
      }
      EXPECT_EQ(spans.Covers(asked), covered);
      for (const CachedSpan& span : spans.Touching(asked))
        EXPECT_EQ(all[static_cast<size_t>(owner[span.range.offset])], span);
    }
  }
}

TEST(CachedSpans, TheSameRangeAgainTakesThePlaceOfTheOld) {
  CachedSpans spans;
  EXPECT_TRUE(spans.Add({{10, 10}, 1}));
  EXPECT_TRUE(spans.Add({{10, 10}, 2}));
  EXPECT_FALSE(spans.Add({{15, 10}, 3}));
  EXPECT_THAT(spans.Touching({0, 100}), ElementsAre(CachedSpan{{10, 10}, 2}));
}

}  // namespace
}  // namespace millrace
