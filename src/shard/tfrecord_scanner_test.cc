#include "shard/tfrecord_scanner.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shard/testing/scan.h"
#include "shard/tfrecord_format.h"

// The test tests/shard/test_tfrecord_oracles.py compares the meaning of Examples with protobuf; this one is for the
// framing.

namespace millrace {
namespace {

using ::testing::HasSubstr;
using testing::ScanShard;

std::string Framed(std::string_view data) {
  std::string record;
  AppendLe(record, uint64_t{data.size()});
  AppendLe(record, MaskedCrc32c(AsBytes(record)));
  record.append(data);
  AppendLe(record, MaskedCrc32c(AsBytes(data)));
  return record;
}

std::string Message(int field, std::string_view bytes) {
  std::string out(1, static_cast<char>(field << 3 | 2));
  AppendVarint(out, bytes.size());
  return out.append(bytes);
}

std::string BytesFeature(std::string_view name, std::string_view value) {
  return Message(1, Message(1, name) + Message(2, Message(1, Message(1, value))));
}

TEST(TfRecordScanner, FieldsOfAnExample) {
  const std::string example = Message(1, BytesFeature("a", "\xff\xd8\xff.jpeg") + BytesFeature("cls", "7"));
  const std::string shard = Framed(example) + Framed("other") + Framed("");
  for (const size_t chunk : {size_t{1}, size_t{3}, size_t{50}, shard.size()}) {
    const auto scanned = ScanShard(DataKind::kTfRecord, shard, chunk);
    ASSERT_TRUE(scanned.status.ok()) << scanned.status;
    ASSERT_EQ(scanned.samples.size(), 3U);
    EXPECT_TRUE(testing::IsSound(scanned, shard));
    const ShardSample& first = scanned.samples[0];
    ASSERT_EQ(first.fields.size(), 2U);
    EXPECT_EQ(first.key, "");
    EXPECT_EQ(first.label, "7");
    EXPECT_EQ(first.fields[0].encoding, "jpeg");
    EXPECT_EQ(shard.substr(first.fields[0].offset, first.fields[0].length), "\xff\xd8\xff.jpeg");
    EXPECT_EQ(scanned.samples[1].fields[0].name, "bin");
    EXPECT_EQ(shard.substr(scanned.samples[1].fields[0].offset, 5), "other");
    EXPECT_EQ(scanned.samples[2].fields[0].length, 0U);
  }
}

TEST(TfRecordScanner, NoRecords) {
  EXPECT_TRUE(ScanShard(DataKind::kTfRecord, "", 1).status.ok());
}

TEST(TfRecordScanner, TooManyFeatures) {
  std::string map;
  for (size_t i = 0; i < kMaxSampleFields; ++i) map += BytesFeature(fmt::format("{}", i), "x");
  EXPECT_TRUE(ScanShard(DataKind::kTfRecord, Framed(Message(1, map)), 999).status.ok());
  map += BytesFeature("one more", "x");
  const auto scanned = ScanShard(DataKind::kTfRecord, Framed("x") + Framed(Message(1, map)), 999);
  EXPECT_EQ(scanned.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(scanned.status.ToString(), HasSubstr("offset 29: this tf.train.Example has more than 1024 features"));
}

TEST(TfRecordScanner, NamesThatAreTooLong) {
  const std::string example = Message(1, BytesFeature(std::string(4097, 'n'), "x"));
  EXPECT_THAT(ScanShard(DataKind::kTfRecord, Framed(example), 999).status.ToString(),
              HasSubstr("offset 12: the name of a feature has 4097 bytes"));
}

}  // namespace
}  // namespace millrace
