#include "shard/tar_outline.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "shard/tar_encoder.h"
#include "shard/testing/scan.h"
#include "shard/testing/tar_builder.h"

namespace millrace {
namespace {

using testing::End;
using ::testing::HasSubstr;
using testing::Member;
using testing::Pax;
using testing::WdsIndexOf;

TarEnds EndsOf(const std::string& shard) {
  const uint64_t ends = std::min<uint64_t>(kMaxTarGapBytes, shard.size());
  return {.shard_bytes = shard.size(), .head = AsBytes(shard).first(ends), .tail = AsBytes(shard).last(ends)};
}

testing::Scanned Outlined(const std::string& index, const std::string& shard) {
  testing::Scanned outlined;
  outlined.status = OutlineTar(index, EndsOf(shard), [&](const ShardSample& sample) {
    outlined.samples.push_back(sample);
    return absl::OkStatus();
  });
  return outlined;
}

std::string Text(const ShardSample& sample) {
  std::string text = fmt::format("{} {}+{}", sample.key, sample.span.offset, sample.span.length);
  for (const ShardField& field : sample.fields)
    text += fmt::format(" {}@{}+{}", field.name, field.offset, field.length);
  return text;
}

std::vector<std::string> Texts(const testing::Scanned& scanned) {
  std::vector<std::string> texts;
  for (const ShardSample& sample : scanned.samples) texts.push_back(Text(sample));
  return texts;
}

/// The shard has extended headers, a folder, files that make no samples, and a sample in two groups.
std::string Shard() {
  std::string shard = Pax({"comment=of the archive"}, 'g') + Member("set/", "", '5') + Member("./a/1.JPG", "first");
  shard += Member("./a/1.cls", "3") + Member("__meta__.json", "{}") + Pax({"mtime=1.5"}) + Member("a/2.jpg", "") +
           Member("a/2.seg.png", std::string(1024, 'x')) + Member("README", "text") + Member("a/2.txt", "late") +
           Member(".hidden", "x");
  for (int i = 0; i < 40; ++i) shard += Member(fmt::format("b/{}.npy", i), std::string(1000, 'n'));
  return shard + End();
}

TEST(TarOutline, FindsWhatReadingFinds) {
  const std::string shard = Shard();
  const std::string index = WdsIndexOf(shard);
  const testing::Scanned scanned = testing::ScanShard(DataKind::kTar, shard, 1000);
  ASSERT_TRUE(scanned.status.ok());
  const testing::Scanned outlined = Outlined(index, shard);
  ASSERT_TRUE(outlined.status.ok()) << outlined.status;
  EXPECT_EQ(Texts(outlined), Texts(scanned));
  EXPECT_EQ(outlined.samples.size(), 43U);
}

TEST(TarOutline, KeysThatWereEscaped) {
  std::string shard;
  const auto take = [&](ByteSpan bytes) {
    shard.append(AsText(bytes));
    return absl::OkStatus();
  };
  TarEncoder encoder;
  ASSERT_TRUE(encoder.Begin(take).ok());
  SampleShape shape;
  shape.key = "v1.5/__x";
  shape.fields = {{.name = "txt", .length = 1, .type = FieldType::kBytes}};
  ASSERT_TRUE(encoder.BeginSample(shape, take).ok());
  ASSERT_TRUE(encoder.Add(AsBytes(std::string_view("x")), take).ok());
  shape.key = "v1.6";
  ASSERT_TRUE(encoder.BeginSample(shape, take).ok());
  ASSERT_TRUE(encoder.Add(AsBytes(std::string_view("y")), take).ok());
  ASSERT_TRUE(encoder.End(take).ok());
  const testing::Scanned outlined = Outlined(WdsIndexOf(shard), shard);
  ASSERT_TRUE(outlined.status.ok()) << outlined.status;
  EXPECT_EQ(Texts(outlined), Texts(testing::ScanShard(DataKind::kTar, shard, 1000)));
  EXPECT_EQ(outlined.samples[1].key, "v1.6");
}

std::string Refusal(const std::string& index, const std::string& shard) {
  const testing::Scanned outlined = Outlined(index, shard);
  return outlined.status.ok() ? "taken" : std::string(outlined.status.message());
}

TEST(TarOutline, AnIndexOfAnotherShardIsRefused) {
  const std::string shard = Shard();
  const std::string index = WdsIndexOf(shard);
  ASSERT_EQ(Refusal(index, shard), "taken");
  // The shards differ: another first file; more files; fewer; none of the archive's end; a shard that is cut.
  EXPECT_THAT(Refusal(index, Member("z.jpg", "first") + shard), HasSubstr("the first file of the shard is not"));
  EXPECT_THAT(Refusal(index, shard.substr(0, shard.size() - 1024)), HasSubstr("no end of the archive"));
  const std::string longer = shard.substr(0, shard.size() - 1024) + Member("c.jpg", "more") + End();
  EXPECT_THAT(Refusal(index, longer), HasSubstr("the shard also holds 'c.jpg'"));
  EXPECT_THAT(Refusal(WdsIndexOf(longer), shard), HasSubstr("no end of the archive follows its last file"));
  EXPECT_THAT(Refusal(index, shard + std::string(1 << 15, '\0')), HasSubstr("its last file ends at"));
}

TEST(TarOutline, TextsThatAreNoIndexAreRefused) {
  const std::string shard = Member("a.jpg", "data") + Member("a.cls", "1") + End();
  ASSERT_EQ(Refusal("v1.2 1\njpg 512 4 a.jpg cls 1536 1 a.cls\n", shard), "taken");
  for (const std::string_view text :
       {"", "v1.2", "v1.2 x\n", "v1.2 2\njpg 512 4 a.jpg cls 1536 1 a.cls\n", "v1.2 1\njpg 512 4 a.jpg cls 1536 1\n",
        "v1.2 1\njpg 512 4 a.png\n", "v1.2 1\njpg -1 4 a.jpg\n", "v1.2 1\njpg 512 4 a\\303.jpg\n", "v1.2 0\n",
        "v1.2 1\n\n", "v1.2 1\njpg  512 4 a.jpg\n", "v1.2 1\njpg 512 99999999999999999999 a.jpg\n",
        "v1.2 1\njpg 512 18446744073709551615 a.jpg\n", "v1.2 1\njpg 513 4 a.jpg\n", "v1.2 1\njpg 0 4 a.jpg\n",
        "v1.2 1\njpg 512 4 a.jpg jpg 1536 1 a.jpg\n", "v1.2 1\njpg 512 5 a.jpg cls 1536 1 a.cls\n",
        "v1.2 1\ncls 1536 1 a.cls jpg 512 4 a.jpg\n"}) {
    EXPECT_NE(Refusal(std::string(text), shard), "taken") << text;
  }
  EXPECT_THAT(Refusal("v1.1 1\njpg 512 4 cls 1536 1\n", shard), HasSubstr("older version of wds2idx"));
}

TEST(TarOutline, WhatMustLieInFrontOfAFile) {
  const std::string header = Member("./a/1.Seg.PNG", "12345").substr(0, 512);
  const auto fits = [](const std::string& gap, std::string_view key, std::string_view field, uint64_t size) {
    return FitsTarMember(AsBytes(gap), {key, field}, size);
  };
  EXPECT_TRUE(fits(header, "a/1", "seg.png", 5));
  EXPECT_TRUE(fits(Member("d/", "", '5') + Pax({"mtime=1.5"}) + header, "a/1", "seg.png", 5));
  EXPECT_TRUE(fits(Pax({"path=long/name.jpg"}) + header, "long/name", "jpg", 5));
  EXPECT_FALSE(fits(header, "a/2", "seg.png", 5));
  EXPECT_FALSE(fits(header, "a/1", "png", 5));
  EXPECT_FALSE(fits(header, "a/1", "seg.png", 6));
  EXPECT_FALSE(fits("", "a/1", "seg.png", 5));
  EXPECT_FALSE(fits(header.substr(0, 500), "a/1", "seg.png", 5));
  EXPECT_FALSE(fits(header + header, "a/1", "seg.png", 5)) << "something else begins there";
  EXPECT_FALSE(fits(Member("b.jpg", "") + header, "a/1", "seg.png", 5)) << "a sample lies in between";
  EXPECT_FALSE(fits(End() + header, "a/1", "seg.png", 5)) << "another archive";
  std::string damaged = header;
  damaged[0] ^= 1;
  EXPECT_FALSE(fits(damaged, "a/1", "seg.png", 5));
}

}  // namespace
}  // namespace millrace
