#include "shard/recordio_scanner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shard/recordio_format.h"
#include "shard/testing/scan.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using testing::ScanShard;

std::string Part(uint32_t kind, std::string_view data) {
  std::string part;
  AppendLe(part, kRecordIoMagic);
  AppendLe(part, kind << 29 | static_cast<uint32_t>(data.size()));
  part.append(data);
  part.resize((part.size() + 3) / 4 * 4);
  return part;
}

std::string Header(uint32_t flag, float label) {
  std::string header;
  AppendLe(header, flag);
  AppendLe(header, label);
  AppendLe(header, uint64_t{5});
  AppendLe(header, uint64_t{0});
  return header;
}

std::string DescribeRecords(const std::string& shard) {
  const auto scanned = ScanShard(DataKind::kRecordIo, shard, 5);
  EXPECT_TRUE(testing::IsSound(scanned, shard));
  if (!scanned.status.ok()) return scanned.status.ToString();
  std::string text;
  std::string scratch;
  for (const ShardSample& sample : scanned.samples) {
    text += "[" + sample.label + "]";
    for (const ShardField& field : sample.fields) {
      const auto value = FieldValue(field.encoding, AsBytes(shard).subspan(field.offset, field.length), &scratch);
      text += " " + field.name + "(" + field.encoding + ")=";
      text += TypeOfEncoding(field.encoding) == FieldType::kNdarray ? "array" : std::string(AsText(*value));
    }
    text += ";";
  }
  return text;
}

TEST(RecordIoScanner, RecordsWithAndWithoutHeader) {
  EXPECT_EQ(DescribeRecords(""), "");
  EXPECT_EQ(DescribeRecords(Part(0, "text")), "[] bin()=text;");
  EXPECT_EQ(DescribeRecords(Part(0, "")), "[] bin()=;");
  EXPECT_EQ(DescribeRecords(Part(0, Header(0, 3) + "\xff\xd8\xffimage")), "[3] cls(f4)=3 jpg(jpeg)=\xff\xd8\xffimage;");
  EXPECT_EQ(DescribeRecords(Part(0, Header(0, -0.5) + "x")), "[] cls(f4)=-0.5 bin()=x;");
  EXPECT_EQ(DescribeRecords(Part(0, Header(0, 3))), "[3] cls(f4)=3 bin()=;");
  EXPECT_EQ(DescribeRecords(Part(0, Header(1, 0) + std::string("\0\0\0\x40", 4) + "x")), "[2] cls(f4)=2 bin()=x;");
  EXPECT_EQ(DescribeRecords(Part(0, Header(2, 0) + "12345678" + "x")), "[] labels(f4s)=array bin()=x;");
  // These are not headers: more labels than fit, a label beside several, one that is not a number.
  EXPECT_THAT(DescribeRecords(Part(0, Header(3, 0) + "12345678x")), HasSubstr("[] bin()="));
  EXPECT_THAT(DescribeRecords(Part(0, Header(1, 2) + "12345678x")), HasSubstr("[] bin()="));
  EXPECT_THAT(DescribeRecords(Part(0, Header(0, std::numeric_limits<float>::infinity()) + "x")),
              HasSubstr("[] bin()="));
}

TEST(RecordIoScanner, RecordsInParts) {
  std::string magic;
  AppendLe(magic, kRecordIoMagic);
  EXPECT_EQ(DescribeRecords(Part(1, "abcd") + Part(2, "") + Part(3, "xyz")),
            "[] bin(recordio:)=abcd" + magic + magic + "xyz;");
  EXPECT_EQ(DescribeRecords(Part(1, "") + Part(3, "")), "[] bin()=" + magic + ";");
  // The split is in front of the image, in its header, at its end.
  EXPECT_EQ(DescribeRecords(Part(1, Header(0, 3)) + Part(3, "x")), "[3] cls(f4)=3 bin(recordio:)=" + magic + "x;");
  const std::string header = Header(0, 3);
  EXPECT_EQ(DescribeRecords(Part(1, header.substr(0, 8)) + Part(3, header.substr(12) + "abcd")),
            "[3] cls(f4)=3 bin()=abcd;");
  EXPECT_EQ(DescribeRecords(Part(1, header + "abcd") + Part(3, "")), "[3] cls(f4)=3 bin()=abcd" + magic + ";");
}

TEST(RecordIoScanner, Damage) {
  EXPECT_THAT(DescribeRecords("garbage!"), HasSubstr("DATA_LOSS: offset 0: no RecordIO record begins here"));
  EXPECT_THAT(DescribeRecords(Part(0, "abcd") + Part(3, "x")), HasSubstr("offset 12: the last part"));
  EXPECT_THAT(DescribeRecords(Part(1, "abcd") + Part(0, "x")), HasSubstr("offset 12: a whole record"));
  EXPECT_THAT(DescribeRecords(Part(1, "abcd") + Part(1, "x")), HasSubstr("offset 12: the first part"));
  EXPECT_THAT(DescribeRecords(Part(4, "abcd")), HasSubstr("unknown kind 4"));
  EXPECT_THAT(DescribeRecords(Part(1, "abc") + Part(3, "x")), HasSubstr("not a multiple of 4"));
  EXPECT_THAT(DescribeRecords(Part(1, Part(0, "")) + Part(3, "x")), HasSubstr("holds the magic number"));
  EXPECT_THAT(DescribeRecords(Part(1, "abcd")), HasSubstr("truncated"));
  const std::string shard = Part(0, "abcdef") + Part(1, "abcd") + Part(2, "efgh") + Part(3, "xyz");
  for (size_t size = 1; size < shard.size(); ++size) {
    if (size == Part(0, "abcdef").size()) continue;
    EXPECT_THAT(DescribeRecords(shard.substr(0, size)), HasSubstr("truncated")) << size;
  }
}

}  // namespace
}  // namespace millrace
