#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shard/mds_writer.h"
#include "shard/npy.h"
#include "shard/recordio_format.h"
#include "shard/recordio_writer.h"
#include "shard/testing/scan.h"
#include "shard/tfrecord_writer.h"

// Other programs read the written shards in tests/shard/test_writers.py; here they are read by this one.

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ScanShard;

ValueField Field(std::string_view name, FieldType type, std::string_view value) {
  return {.name = name, .type = type, .value = AsBytes(value)};
}

std::string NpyField(std::string_view type, std::vector<uint64_t> shape, const std::string& values) {
  std::string file;
  AppendNpyHead(file, *ParseNumberType(type), shape);
  return file + values;
}

// Returns "key: name(type)=value ..." of each sample.
std::vector<std::string> ReadShard(DataKind kind, const std::string& shard) {
  const auto scanned = ScanShard(kind, shard, 100);
  EXPECT_TRUE(scanned.status.ok()) << scanned.status;
  EXPECT_TRUE(testing::IsSound(scanned, shard));
  std::vector<std::string> samples;
  std::string scratch;
  for (const ShardSample& sample : scanned.samples) {
    std::string& text = samples.emplace_back(sample.key + ":");
    for (const ShardField& field : sample.fields) {
      const auto value = FieldValue(field.encoding, AsBytes(shard).subspan(field.offset, field.length), &scratch);
      EXPECT_TRUE(value.ok()) << value.status();
      text += " " + field.name + "(" + std::string(FieldTypeName(TypeOfEncoding(field.encoding))) + ")=";
      if (value.ok()) text += AsText(*value);
    }
  }
  return samples;
}

TEST(TfRecordWriter, ValuesSurvive) {
  const std::string ints = NpyField("i8", {3}, std::string(24, '\xff'));
  const std::string one = NpyField("f4", {1}, "abcd");
  const std::string none = NpyField("f4", {0}, "");
  const std::vector<ValueField> fields = {
      Field("b", FieldType::kBytes, "bytes"),
      Field("i", FieldType::kInt, "-7"),
      Field("big", FieldType::kInt, "9223372036854775808"),  // of more than 63 bits
      Field("f", FieldType::kFloat, "0.1"),
      Field("d", FieldType::kFloat, "0.1234567890123"),
      Field("a", FieldType::kNdarray, ints),
      Field("one", FieldType::kNdarray, one),
      Field("none", FieldType::kNdarray, none),
      Field("j", FieldType::kJson, "{}"),
      Field("", FieldType::kText, ""),
  };
  std::string record;
  ASSERT_TRUE(AppendTfExample(record, "../k", fields).ok());
  std::string shard;
  ASSERT_TRUE(AppendTfRecord(shard, AsBytes(record)).ok());
  EXPECT_THAT(ReadShard(DataKind::kTfRecord, shard),
              ElementsAre("../k: b(bytes)=bytes i(int)=-7 big(bytes)=9223372036854775808 f(float)=0.1 "
                          "d(bytes)=0.1234567890123 a(ndarray)=" +
                          ints + " one(bytes)=" + one + " none(ndarray)=" + none + " j(bytes)={} (bytes)="));
}

TEST(TfRecordWriter, Refuses) {
  std::string record;
  const ValueField key = Field("__key__", FieldType::kBytes, "x");
  EXPECT_THAT(AppendTfExample(record, "k", {&key, 1}).ToString(), HasSubstr("sample 'k' has a field '__key__'"));
  EXPECT_FALSE(AppendTfExample(record, "k", {}).ok());
}

TEST(RecordIoWriter, ValuesSurvive) {
  std::string magic;
  AppendLe(magic, kRecordIoMagic);
  const std::string labels = NpyField("f4", {2}, "abcd" + magic);
  const std::vector<std::vector<ValueField>> samples = {
      {Field("cls", FieldType::kInt, "3"), Field("jpg", FieldType::kBytes, "\xff\xd8\xffx")},
      {Field("bin", FieldType::kBytes, magic), Field("cls", FieldType::kBytes, "-0.5")},
      {Field("bin", FieldType::kBytes, "text"), Field("labels", FieldType::kNdarray, labels)},
      {Field("bin", FieldType::kBytes, "no label")},
  };
  std::string shard;
  std::string index;
  for (size_t i = 0; i < samples.size(); ++i) {
    std::string record;
    ASSERT_TRUE(AppendMxnetSample(record, "k", i, samples[i]).ok());
    AppendRecordIoIndexLine(index, i, shard.size());
    ASSERT_TRUE(AppendRecordIo(shard, AsBytes(record)).ok());
  }
  EXPECT_THAT(ReadShard(DataKind::kRecordIo, shard),
              ElementsAre(": cls(float)=3 jpg(bytes)=\xff\xd8\xffx", ": cls(float)=-0.5 bin(bytes)=" + magic,
                          ": labels(ndarray)=" + labels + " bin(bytes)=text", ": bin(bytes)=no label"));
  EXPECT_EQ(index, "0\t0\n1\t36\n2\t76\n3\t124\n");
}

TEST(RecordIoWriter, Refuses) {
  std::string record;
  const auto refused = [&](const std::vector<ValueField>& fields) {
    return AppendMxnetSample(record, "k", 0, fields).ToString();
  };
  const ValueField jpg = Field("jpg", FieldType::kBytes, "x");
  EXPECT_THAT(refused({}), HasSubstr("no field besides the label"));
  EXPECT_THAT(refused({jpg, Field("txt", FieldType::kText, "x")}), HasSubstr("both 'jpg' and 'txt'"));
  EXPECT_THAT(refused({jpg, Field("cls", FieldType::kText, "cat")}), HasSubstr("not a number"));
  EXPECT_THAT(refused({jpg, Field("cls", FieldType::kInt, "16777217")}), HasSubstr("not a number"));
  EXPECT_THAT(refused({jpg, Field("labels", FieldType::kNdarray, "cat")}), HasSubstr("not an array"));
  EXPECT_THAT(refused({Field("bin", FieldType::kBytes,
                             std::string_view("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24))}),
              HasSubstr("as if it began with one"));
}

TEST(MdsWriter, ValuesSurvive) {
  const std::string array = NpyField("u2", {2, 300}, std::string(1200, 'v'));
  const std::vector<ValueField> fields = {
      Field("txt", FieldType::kText,
            "gr\xc3\xb6\xc3\x9f"
            "e"),
      Field("a", FieldType::kNdarray, array),
      Field("f", FieldType::kFloat, "0.1"),
      Field("cls", FieldType::kInt, "-3"),
      Field("jpg", FieldType::kBytes, "\xff\xd8\xff"),
      Field("j", FieldType::kJson, "[1]"),
  };
  const auto columns = MdsColumnsFor(fields);
  ASSERT_TRUE(columns.ok());
  MdsShardWriter writer(*columns);
  ASSERT_TRUE(writer.Add("a/b.c", fields).ok());
  const uint64_t one = writer.bytes();
  EXPECT_FALSE(writer.Add("bad", {fields.data(), 2}).ok());
  EXPECT_EQ(writer.bytes(), one);
  ASSERT_TRUE(writer.Add("k", fields).ok());
  const std::string shard = writer.Head() + writer.data();
  EXPECT_EQ(shard.size(), writer.bytes());
  const std::string expected =
      ": a(ndarray)=" + array +
      " cls(int)=-3 f(float)=0.1 j(json)=[1] jpg(bytes)=\xff\xd8\xff txt(text)=gr\xc3\xb6\xc3\x9f"
      "e";
  EXPECT_THAT(ReadShard(DataKind::kMds, shard), ElementsAre("a/b.c" + expected, "k" + expected));

  const MdsShardEntry entry{.name = "shard.00000.mds", .bytes = shard.size(), .samples = 2};
  const auto index = ParseMdsIndex(MdsIndexJson(*columns, {&entry, 1}));
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(index->front().name, "shard.00000.mds");
  EXPECT_EQ(index->front().samples, 2U);
}

TEST(MdsWriter, Refuses) {
  const auto add = [](const ValueField& field) {
    const auto columns = MdsColumnsFor({&field, 1});
    if (!columns.ok()) return columns.status().ToString();
    MdsShardWriter writer(*columns);
    return writer.Add("k", {&field, 1}).ToString();
  };
  EXPECT_THAT(add(Field("__key__", FieldType::kText, "x")), HasSubstr("two fields '__key__'"));
  EXPECT_THAT(add(Field("\xff", FieldType::kText, "x")), HasSubstr("not UTF-8"));
  EXPECT_THAT(add(Field("t", FieldType::kText, "\xff")),
              HasSubstr("sample 'k' cannot be written to MDS: the value of 't'"));
  EXPECT_THAT(add(Field("i", FieldType::kInt, "9223372036854775808")), HasSubstr("does not fit"));
  EXPECT_THAT(add(Field("i", FieldType::kInt, "cat")), HasSubstr("does not fit"));
  EXPECT_THAT(add(Field("a", FieldType::kNdarray, NpyField("f4", {0}, ""))), HasSubstr("does not fit"));
  EXPECT_THAT(add(Field("a", FieldType::kNdarray, NpyField("f4", {}, "abcd"))), HasSubstr("does not fit"));
}

}  // namespace
}  // namespace millrace
