#include "cache/cache_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
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
                                     CacheIdentity{kIdentity.store + "t", "rain/0.tar", kIdentity.etag},
                                     CacheIdentity{kIdentity.store, kIdentity.key, kIdentity.etag, "key A"}}) {
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
  EXPECT_EQ(DecodeHead(AsBytes(*head))->object_bytes, 12345u);
  EXPECT_EQ(DecodeHead(AsBytes(*head))->identity, kIdentity);
  CacheIdentity of_tenant = kIdentity;
  of_tenant.tenant = "role arn:aws:iam::123456789012:role/train";
  EXPECT_EQ(DecodeHead(AsBytes(*EncodeHead(of_tenant, 1)))->identity, of_tenant);
  EXPECT_TRUE(absl::IsDataLoss(DecodeHead(AsBytes(head->substr(1))).status()));
  EXPECT_TRUE(absl::IsDataLoss(DecodeHead({}).status()));
  for (size_t at = 0; at < head->size(); at += 7) {
    std::string flipped = *head;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    EXPECT_TRUE(absl::IsDataLoss(DecodeHead(AsBytes(flipped)).status())) << at;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(EncodeHead({"", std::string(5000, 'k'), ""}, 1).status()));
}

TEST(CacheFormat, RecordsAreWholeOrNothing) {
  const CachedSpan span{{100, 50}, 0x12345678, {77, 0x1122334455667788}};
  const std::string record = EncodeRecord(span);
  ASSERT_EQ(record.size(), kRecordBytes);
  EXPECT_EQ(DecodeRecord(AsBytes(record), 150), span);
  EXPECT_EQ(DecodeRecord(AsBytes(record), 149), std::nullopt) << "it is not about this object";
  EXPECT_EQ(DecodeRecord(AsBytes(EncodeRecord({{UINT64_MAX, 2}, 0, {}})), UINT64_MAX), std::nullopt);
  EXPECT_EQ(DecodeRecord(AsBytes(std::string(kRecordBytes, '\0')), 150), std::nullopt) << "a hole in the file";
  const size_t hints = EncodeHints(span.hints).size();
  EXPECT_EQ(record.substr(kHintsAt, hints), EncodeHints(span.hints));
  for (size_t at = 0; at < record.size(); ++at) {
    std::string flipped = record;
    flipped[at] = static_cast<char>(flipped[at] ^ 64);
    const auto decoded = DecodeRecord(AsBytes(flipped), 150);
    const bool is_hint = at >= kHintsAt && at < kHintsAt + hints;
    EXPECT_EQ(decoded.has_value(), is_hint) << at;
    EXPECT_TRUE(!decoded || decoded->range == span.range) << at;
  }
}

TEST(CacheFormat, RecordsLieBehindTheData) {
  EXPECT_EQ(ChangesAt(0), 4096u);
  EXPECT_EQ(ChangesAt(1), 8192u);
  EXPECT_EQ(ChangesAt(4096), 8192u);
  EXPECT_EQ(RecordsAt(4097), ChangesAt(4097) + 4096);
  EXPECT_LE(ChangeAt(kChangesKept - 1) + sizeof(uint32_t), kChangesBytes);
  EXPECT_EQ(ChangeAt(kChangesKept), ChangeAt(0));
}

// Compares the spans with a map of bytes, and of blocks.
TEST(CachedSpans, AreWhatAMapOfBytesSays) {
  constexpr uint64_t kUnit = 1024;  // four to a block
  constexpr uint64_t kUnits = 64;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    CachedSpans spans;
    std::map<uint32_t, CachedSpan> all;  // by record
    const auto has = [&](uint64_t unit, std::optional<ByteRange> but = {}) {
      for (const auto& [record, span] : all) {
        if (but && span.range == *but) continue;
        if (span.range.offset <= unit * kUnit && unit * kUnit < span.range.end()) return true;
      }
      return false;
    };
    for (int i = 0; i < 40; ++i) {
      const uint64_t first = rng.Below(kUnits);
      const ByteRange range{first * kUnit, (1 + rng.Below(std::min<uint64_t>(12, kUnits - first))) * kUnit};
      if (rng.Below(4) == 0 && !all.empty()) {
        const auto any = spans.Any(rng);
        ASSERT_TRUE(any && all.at(any->record) == any->span);
        const auto [from, end] = spans.OwnBlocks(any->span.range);
        for (uint64_t block = 0; block < kUnits / 4; ++block) {
          bool own = false;
          bool others = false;
          for (uint64_t unit = block * 4; unit < block * 4 + 4; ++unit) {
            own = own || (any->span.range.offset <= unit * kUnit && unit * kUnit < any->span.range.end());
            others = others || has(unit, any->span.range);
          }
          EXPECT_EQ(block >= from && block < end, own && !others) << block;
        }
        spans.Set(any->record, std::nullopt);
        all.erase(any->record);
      } else {
        const CachedSpan span{range, static_cast<uint32_t>(rng.Next()), {2, rng.Next()}};
        const uint32_t record = spans.FreeRecord();
        EXPECT_FALSE(all.contains(record));
        EXPECT_LE(record, all.size()) << "free records are used again";
        bool overlaps = false;
        for (auto old = all.begin(); old != all.end();) {
          const bool same = old->second.range == range;
          const bool touches = old->second.range.offset < range.end() && range.offset < old->second.range.end();
          overlaps = overlaps || (touches && !same);
          old = same ? all.erase(old) : std::next(old);
        }
        spans.Set(record, span);
        if (!overlaps) all[record] = span;
      }
      const ByteRange asked{rng.Below(kUnits) * kUnit, (1 + rng.Below(20)) * kUnit};
      std::vector<bool> missing(kUnits + 20, false);
      for (const ByteRange& part : spans.Missing(asked)) {
        for (uint64_t at = part.offset; at < part.end(); at += kUnit) missing[at / kUnit] = true;
      }
      bool covered = true;
      for (uint64_t at = asked.offset; at < asked.end(); at += kUnit) {
        EXPECT_EQ(missing[at / kUnit], !has(at / kUnit)) << at;
        covered = covered && has(at / kUnit);
      }
      EXPECT_EQ(spans.Covers(asked), covered);
      for (const CachedSpans::Entry& entry : spans.Touching(asked)) {
        EXPECT_EQ(all.at(entry.record), entry.span);
        EXPECT_EQ(spans.Find(entry.span.range)->record, entry.record);
      }
      EXPECT_EQ(spans.size(), all.size());
    }
  }
}

// Another user of a group may write them.
TEST(CacheFormat, ASlabHasItsSizeAndSmallObjects) {
  const CacheIdentity slab = SmallObject::Of({"store", "key", "etag"}, 0)->slab;
  EXPECT_TRUE(DecodeHead(AsBytes(*EncodeHead(slab, kSlabBytes))).ok());
  EXPECT_TRUE(absl::IsDataLoss(DecodeHead(AsBytes(*EncodeHead(slab, kSlabBytes / 2))).status()));
  EXPECT_TRUE(DecodeHead(AsBytes(*EncodeHead({"store", "key", "etag"}, kSlabBytes / 2))).ok());
  const std::string longest = EncodeRecord({{0, kMaxSlabSpanBytes}, 0, {}});
  EXPECT_TRUE(DecodeRecord(AsBytes(longest), kSlabBytes, /*in_slab=*/true).has_value());
  const std::string longer = EncodeRecord({{0, kMaxSlabSpanBytes + 1}, 0, {}});
  EXPECT_EQ(DecodeRecord(AsBytes(longer), kSlabBytes, /*in_slab=*/true), std::nullopt);
  EXPECT_TRUE(DecodeRecord(AsBytes(longer), kSlabBytes).has_value());
}

TEST(CachedSpans, TheSameRangeAgainTakesThePlaceOfTheOld) {
  CachedSpans spans;
  spans.Set(0, CachedSpan{{10, 10}, 1, {}});
  spans.Set(1, CachedSpan{{10, 10}, 2, {}});
  spans.Set(2, CachedSpan{{15, 10}, 3, {}});
  EXPECT_THAT(spans.All(), ElementsAre(CachedSpan{{10, 10}, 2, {}}));
  EXPECT_EQ(spans.FreeRecord(), 0u);
  spans.SetHints(1, {5, 6});
  EXPECT_EQ(spans.All().front().hints, (UseHints{5, 6}));
}

// The slab has 1,000 bytes.
TEST(CachedSpans, PlacesOfASlab) {
  CachedSpans spans(1000);
  const auto at = [](uint64_t offset, uint64_t length) { return CachedSpan{{offset, length}, 1, {}, 5}; };
  spans.Set(0, at(0, 100));
  spans.Set(1, at(130, 100));
  spans.Set(2, at(240, 100));
  EXPECT_EQ(spans.PlaceFor(10), (ByteRange{230, 10})) << "the smallest one";
  EXPECT_EQ(spans.PlaceFor(11), (ByteRange{100, 11}));
  EXPECT_EQ(spans.PlaceFor(31), (ByteRange{340, 31})) << "the end is last";
  EXPECT_EQ(spans.PlaceFor(661), std::nullopt);
  EXPECT_EQ(spans.LeftBeside(130, {130, 100}), 10u);
  EXPECT_EQ(spans.LeftBeside(140, {130, 100}), 0u);
  EXPECT_EQ(spans.LeftBeside(141, {130, 100}), std::nullopt);
  EXPECT_EQ(spans.LeftBeside(130, {0, 100}), 0u);
  EXPECT_EQ(spans.LeftBeside(700, {240, 100}), 70u);
  spans.Set(1, std::nullopt);
  EXPECT_EQ(spans.PlaceFor(31), (ByteRange{100, 31})) << "both gaps and what was between them";
  EXPECT_EQ(spans.LeftBeside(240, {0, 100}), 0u);
  EXPECT_EQ(spans.Tagged(5).size(), 2u);
}

}  // namespace
}  // namespace millrace
