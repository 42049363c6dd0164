#include "shard/mds_scanner.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shard/testing/scan.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using testing::ScanShard;

constexpr std::string_view kColumns =
    R"({"column_encodings": ["int", "bytes", "str"], "column_names": ["cls", "jpg", "txt"],)"
    R"( "column_sizes": [8, null, null], "format": "mds", "version": 2})";

std::string Shard(std::string_view columns, const std::vector<std::string>& samples) {
  std::string shard;
  auto offset = static_cast<uint32_t>(4 + 4 * (samples.size() + 1) + columns.size());
  AppendLe(shard, static_cast<uint32_t>(samples.size()));
  for (const std::string& sample : samples) {
    AppendLe(shard, offset);
    offset += static_cast<uint32_t>(sample.size());
  }
  AppendLe(shard, offset);
  shard += columns;
  for (const std::string& sample : samples) shard += sample;
  return shard;
}

std::string Sample(int64_t number, std::string_view bytes, std::string_view text) {
  std::string sample;
  AppendLe(sample, static_cast<uint32_t>(bytes.size()));
  AppendLe(sample, static_cast<uint32_t>(text.size()));
  AppendLe(sample, number);
  return sample.append(bytes).append(text);
}

absl::Status Scan(const std::string& shard) {
  const auto scanned = ScanShard(DataKind::kMds, shard, 7);
  EXPECT_TRUE(testing::IsSound(scanned, shard)) << scanned.status;
  return scanned.status;
}

std::string TextOf(const ShardSample& sample) {
  std::string text = fmt::format("{}+{}", sample.span.offset, sample.span.length);
  for (const ShardField& field : sample.fields)
    text += fmt::format(" {}@{}+{} {}", field.name, field.offset, field.length, field.encoding);
  return text;
}

/// Returns the samples by the head alone, or the error.
std::vector<std::string> OutlineOf(const std::string& shard, size_t head_bytes, uint64_t shard_bytes) {
  MdsScanner scanner;
  const absl::StatusOr<bool> whole = scanner.FeedHead(AsBytes(shard).first(head_bytes));
  if (!whole.ok()) return {std::string(whole.status().message())};
  if (!*whole) return {"the head is longer"};
  std::vector<std::string> texts;
  const absl::Status outlined = scanner.Outline(shard_bytes, [&](const ShardSample& sample) {
    texts.push_back(TextOf(sample));
    return absl::OkStatus();
  });
  return outlined.ok() ? texts : std::vector{std::string(outlined.message())};
}

TEST(MdsScanner, TheHeadTellsWhereTheSamplesLie) {
  constexpr std::string_view kOne =
      R"({"column_encodings": ["int", "bytes", "float32"], "column_names": ["cls", "jpg", "w"],)"
      R"( "column_sizes": [8, null, 4], "format": "mds", "version": 2})";
  const auto sample = [](std::string_view bytes) {
    std::string out;
    AppendLe(out, static_cast<uint32_t>(bytes.size()));
    return out.append("\x01\0\0\0\0\0\0\0", 8).append(bytes).append("abcd");
  };
  const std::string shard = Shard(kOne, {sample("one"), sample(""), sample("three")});
  const size_t head = 4 + 4 * 4 + kOne.size();
  std::vector<std::string> scanned;
  for (const ShardSample& one : ScanShard(DataKind::kMds, shard, 7).samples) scanned.push_back(TextOf(one));
  ASSERT_EQ(scanned.size(), 3U);
  EXPECT_EQ(OutlineOf(shard, head, shard.size()), scanned);
  EXPECT_EQ(OutlineOf(shard, shard.size(), shard.size()), scanned);
  EXPECT_EQ(OutlineOf(shard, head - 1, shard.size()), std::vector<std::string>{"the head is longer"});
  EXPECT_THAT(OutlineOf(shard, head, shard.size() + 1).front(), HasSubstr("its samples would end at"));
  const std::string two = Shard(kColumns, {Sample(3, "abc", "text")});
  EXPECT_THAT(OutlineOf(two, two.size(), two.size()).front(), HasSubstr("several of its columns"));
  const std::string torn = Shard(kOne, {"too short"});
  EXPECT_THAT(OutlineOf(torn, torn.size(), torn.size()).front(), HasSubstr("do not add up"));
}

TEST(MdsScanner, Samples) {
  const std::string shard = Shard(kColumns, {Sample(3, "abc", "text"), Sample(-1, "", "")});
  for (const size_t chunk : {size_t{1}, size_t{10}, shard.size()}) {
    const auto scanned = ScanShard(DataKind::kMds, shard, chunk);
    ASSERT_TRUE(scanned.status.ok()) << scanned.status;
    EXPECT_TRUE(testing::IsSound(scanned, shard));
    ASSERT_EQ(scanned.samples.size(), 2U);
    const ShardSample& first = scanned.samples[0];
    EXPECT_EQ(first.label, "3");
    ASSERT_EQ(first.fields.size(), 3U);
    EXPECT_EQ(first.fields[0].encoding, "i8");
    EXPECT_EQ(shard.substr(first.fields[1].offset, first.fields[1].length), "abc");
    EXPECT_EQ(first.fields[2].encoding, "text");
  }
  EXPECT_TRUE(Scan(Shard(kColumns, {})).ok());
}

TEST(MdsScanner, EveryTruncationIsNoticed) {
  const std::string shard = Shard(kColumns, {Sample(3, "abc", "text"), Sample(-1, "", "x")});
  for (size_t size = 0; size < shard.size(); ++size) {
    EXPECT_THAT(Scan(shard.substr(0, size)).ToString(), HasSubstr("truncated")) << size;
  }
  EXPECT_THAT(Scan(shard + "x").ToString(), HasSubstr("bytes follow the last sample"));
}

TEST(MdsScanner, FlippedBitsDoNoHarm) {
  const std::string shard = Shard(kColumns, {Sample(3, "abc", "text"), Sample(-1, "", "x")});
  for (size_t bit = 0; bit < 8 * shard.size(); ++bit) {
    std::string bad = shard;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    (void)Scan(bad);
  }
}

TEST(MdsScanner, Damage) {
  EXPECT_THAT(Scan(std::string("\xff\xff\xff\xff more", 9)).ToString(),
              HasSubstr("offset 0: an MDS shard of 4294967295"));
  std::string shard = Shard(kColumns, {Sample(3, "abc", "text")});
  std::string bad = shard;
  StoreLe(bad.data() + 4, uint32_t{5});
  EXPECT_THAT(Scan(bad).ToString(), HasSubstr("the first sample cannot begin at 5"));
  bad = shard;
  StoreLe(bad.data() + 8, uint32_t{5});
  EXPECT_THAT(Scan(bad).ToString(), HasSubstr("sample 0 would begin at"));
  bad = shard;
  StoreLe(bad.data() + 8, UINT32_MAX);
  EXPECT_THAT(Scan(bad).ToString(), HasSubstr("at most 536870912 are read"));
  EXPECT_THAT(Scan(Shard(kColumns, {Sample(3, "abc", "text") + "x"})).ToString(), HasSubstr("do not add up"));
  EXPECT_THAT(Scan(Shard(kColumns, {"short"})).ToString(), HasSubstr("do not add up"));
  std::string huge = Sample(3, "abc", "text");
  StoreLe(huge.data(), UINT32_MAX);
  EXPECT_THAT(Scan(Shard(kColumns, {huge})).ToString(), HasSubstr("do not add up"));
}

TEST(MdsScanner, Columns) {
  const auto with = [](std::string_view names, std::string_view encodings, std::string_view sizes) {
    return Scan(Shard(
                    fmt::format(R"({{"column_names": {}, "column_encodings": {}, "column_sizes": {}, "format": "mds", )"
                                R"("version": 2}})",
                                names, encodings, sizes),
                    {}))
        .ToString();
  };
  EXPECT_EQ(with(R"(["../a", "/b", "c\u0000"])", R"(["str", "uint8", "ndarray:int8"])", "[null, 1, null]"), "OK");
  EXPECT_THAT(with(R"(["a"])", R"(["pkl"])", "[null]"),
              HasSubstr("the column 'a' has the encoding: \"pkl\" (a Python"));
  EXPECT_THAT(with(R"(["a"])", R"(["new"])", "[null]"), HasSubstr("\"new\", which is not known here"));
  EXPECT_THAT(with(R"(["a", "a"])", R"(["str", "str"])", "[null, null]"), HasSubstr("two columns \"a\""));
  EXPECT_THAT(with("[]", "[]", "[]"), HasSubstr("0 columns"));
  EXPECT_THAT(with(R"(["a"])", "[]", "[null]"), HasSubstr("not of one length"));
  EXPECT_THAT(with(R"(["a"])", R"(["str"])", "[-1]"), HasSubstr("lacks"));
  EXPECT_THAT(with(R"([1])", R"(["str"])", "[1]"), HasSubstr("lacks"));
  EXPECT_THAT(with(R"(["a"])", R"(["str"])", "[99999999999]"), HasSubstr("values of 99999999999 bytes"));
  EXPECT_THAT(Scan(Shard("no json", {})).ToString(), HasSubstr("is not a JSON object"));
  EXPECT_THAT(Scan(Shard(R"({"version": 3})", {})).ToString(), HasSubstr("is of version 3"));
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_THAT(Scan(Shard(R"({"version": )" + deep + "}", {})).ToString(), HasSubstr("is of version array"));
  EXPECT_THAT(Scan(Shard(R"({"version": 2, "format": "csv"})", {})).ToString(), HasSubstr("of the format \"csv\""));
}

TEST(MdsIndex, Shards) {
  const auto index = ParseMdsIndex(
      R"({"version": 2, "shards": [)"
      R"({"samples": 3, "raw_data": {"basename": "shard.00000.mds", "bytes": 10, "hashes": {}}, "zip_data": null},)"
      R"({"samples": 4, "raw_data": {"basename": "shard.00001.mds", "bytes": 10},)"
      R"( "zip_data": {"basename": "shard.00001.mds.zstd", "bytes": 5}}]})");
  ASSERT_TRUE(index.ok()) << index.status();
  ASSERT_EQ(index->size(), 2U);
  EXPECT_EQ((*index)[0].name, "shard.00000.mds");
  EXPECT_EQ((*index)[0].samples, 3U);
  EXPECT_EQ((*index)[1].name, "shard.00001.mds");
  EXPECT_EQ((*index)[1].bytes, 10U);
  for (const char* bad :
       {"", "[]", "{}", R"({"version": 2})", R"({"version": 2, "shards": [1]})", R"({"version": 1})"}) {
    EXPECT_FALSE(ParseMdsIndex(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace millrace
