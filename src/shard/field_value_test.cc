#include "shard/field_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "shard/npy.h"
#include "shard/recordio_format.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

std::string Value(std::string_view encoding, std::string_view stored) {
  std::string scratch = "left over";
  const auto value = FieldValue(encoding, AsBytes(stored), &scratch);
  return value.ok() ? std::string(AsText(*value)) : value.status().ToString();
}

template <typename T>
std::string Le(std::initializer_list<T> numbers) {
  std::string bytes;
  for (const T number : numbers) AppendLe(bytes, number);
  return bytes;
}

std::string Npy(std::string_view type, std::vector<uint64_t> shape, const std::string& values) {
  std::string file;
  AppendNpyHead(file, *ParseNumberType(type), shape);
  return file + values;
}

TEST(FieldValue, WhatIsStoredAsItIs) {
  for (const std::string_view encoding : {"", "jpeg", "png", "text", "json", "int", "float"}) {
    EXPECT_EQ(Value(encoding, "as it is"), "as it is") << encoding;
    EXPECT_EQ(Value(encoding, ""), "") << encoding;
  }
}

TEST(FieldValue, Numbers) {
  EXPECT_EQ(Value("i1", "\xff"), "-1");
  EXPECT_EQ(Value("u1", "\xff"), "255");
  EXPECT_EQ(Value("i2", Le<int16_t>({-32768})), "-32768");
  EXPECT_EQ(Value("u2", Le<uint16_t>({65535})), "65535");
  EXPECT_EQ(Value("i4", Le<int32_t>({-7})), "-7");
  EXPECT_EQ(Value("u4", Le<uint32_t>({4'000'000'000})), "4000000000");
  EXPECT_EQ(Value("i8", Le<int64_t>({std::numeric_limits<int64_t>::min()})), "-9223372036854775808");
  EXPECT_EQ(Value("u8", Le<uint64_t>({UINT64_MAX})), "18446744073709551615");
  EXPECT_EQ(Value("f4", Le<float>({3})), "3");
  EXPECT_EQ(Value("f4", Le<float>({0.1F})), "0.1");
  EXPECT_EQ(Value("f8", Le<double>({-1e300})), "-1e+300");
  EXPECT_EQ(Value("f4", Le<float>({-std::numeric_limits<float>::quiet_NaN()})), "nan");
  EXPECT_EQ(Value("f8", Le<double>({-std::numeric_limits<double>::infinity()})), "-inf");
  EXPECT_EQ(Value("f2", Le<uint16_t>({0x3c00})), "1");
  EXPECT_EQ(Value("f2", Le<uint16_t>({0xc000})), "-2");
  EXPECT_EQ(Value("f2", Le<uint16_t>({0x7c00})), "inf");
  EXPECT_EQ(Value("f2", Le<uint16_t>({0x7e01})), "nan");
  EXPECT_EQ(HalfToFloat(0x0001), std::ldexp(1.0F, -24));
  EXPECT_EQ(HalfToFloat(0x8001), -std::ldexp(1.0F, -24));
  EXPECT_EQ(HalfToFloat(0x7bff), 65504.0F);
  EXPECT_THAT(Value("i4", "abc"), HasSubstr("DATA_LOSS"));
}

TEST(FieldValue, ListsOfNumbers) {
  EXPECT_EQ(Value("f4s", Le<float>({1, 2})), Npy("f4", {2}, Le<float>({1, 2})));
  EXPECT_EQ(Value("u1s", ""), Npy("u1", {0}, ""));
  EXPECT_THAT(Value("f4s", "abc"), HasSubstr("DATA_LOSS"));
}

TEST(FieldValue, MdsArrays) {
  const std::string values = Le<float>({1, 2, 3, 4, 5, 6});
  const std::string expected = Npy("f4", {2, 3}, values);
  const std::string type = "\x22";                                                    // 34
  const std::string overflow = type + "\x0b" + Le<uint64_t>({uint64_t{1} << 62, 4});  // 2^64 values
  EXPECT_EQ(Value("ndarray", type + "\x08\x02\x03" + values), expected);
  EXPECT_EQ(Value("ndarray", type + "\x09" + Le<uint16_t>({2, 3}) + values), expected);
  EXPECT_EQ(Value("ndarray", type + "\x0b" + Le<uint64_t>({2, 3}) + values), expected);
  EXPECT_EQ(Value("ndarray:float32", "\x08\x02\x03" + values), expected);
  EXPECT_EQ(Value("ndarray:float32:2,3", values), expected);
  for (const auto& [encoding, stored] : std::vector<std::pair<std::string, std::string>>{
           {"ndarray", ""},
           {"ndarray", "\x22"},
           {"ndarray", "\x07\x04\x01x"},  // no such type
           {"ndarray", "\x22\xfc\x01"},   // 63 axes, one of them there
           {"ndarray:float32:2,3", values + "x"},
           {"ndarray:float32:2,4", values},
           {"ndarray", type + "\x0f" + Le<uint64_t>({UINT64_MAX, 2, UINT64_MAX})},  // more than memory holds
           {"ndarray", overflow + values},
       }) {
    EXPECT_THAT(Value(encoding, stored), HasSubstr("DATA_LOSS")) << encoding;
  }
  for (const char* unknown : {"ndarray:", "ndarray:float8", "ndarray:float32:2,x", "ndarray:float32:2;3", "ndarrays"}) {
    EXPECT_THAT(Value(unknown, values), HasSubstr("INVALID_ARGUMENT")) << unknown;
  }
}

TEST(FieldValue, Pil) {
  const auto image = [](uint32_t width, uint32_t height, const std::string& mode, const std::string& pixels) {
    return Le<uint32_t>({width, height, static_cast<uint32_t>(mode.size())}) + mode + pixels;
  };
  EXPECT_EQ(Value("pil", image(2, 1, "RGB", "abcdef")), Npy("u1", {1, 2, 3}, "abcdef"));
  EXPECT_EQ(Value("pil", image(2, 3, "L", "abcdef")), Npy("u1", {3, 2}, "abcdef"));
  EXPECT_THAT(Value("pil", image(2, 3, "RGB", "abcdef")), HasSubstr("DATA_LOSS"));
  EXPECT_THAT(Value("pil", image(8, 1, "1", "a")), HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(Value("pil", Le<uint32_t>({1, 1, UINT32_MAX})), HasSubstr("DATA_LOSS"));
  EXPECT_THAT(Value("pil", "short"), HasSubstr("DATA_LOSS"));
}

TEST(FieldValue, PartsOfRecords) {
  const std::string magic = Le<uint32_t>({kRecordIoMagic});
  const std::string head = magic + "head";
  EXPECT_EQ(Value("recordio:", "abcd" + head + "efgh" + head), "abcd" + magic + "efgh" + magic);
  EXPECT_EQ(Value("recordio:", head + head + "xy"), magic + magic + "xy");
  EXPECT_EQ(Value("recordio:", magic), magic);  // its head is no part of the field any more
  EXPECT_EQ(Value("recordio:jpeg", "abcd" + head), "abcd" + magic);
  EXPECT_EQ(Value("recordio:f4s", head + "1234"), Npy("f4", {2}, magic + "1234"));
  EXPECT_TRUE(IsImageEncoding("recordio:jpeg"));
  EXPECT_EQ(TypeOfEncoding("recordio:f4s"), FieldType::kNdarray);
}

TEST(FieldValue, OthersAreNamed) {
  EXPECT_THAT(Value("of tomorrow", "x"), HasSubstr("INVALID_ARGUMENT: this Millrace does not know"));
  EXPECT_THAT(Value("tf.int", "\x0a"), HasSubstr("DATA_LOSS"));
  EXPECT_THAT(Value("tf.int", ""), HasSubstr("DATA_LOSS"));
}

TEST(FieldValue, Types) {
  EXPECT_EQ(TypeOfEncoding(""), FieldType::kBytes);
  EXPECT_EQ(TypeOfEncoding("jpeg"), FieldType::kBytes);
  EXPECT_EQ(TypeOfEncoding("u2"), FieldType::kInt);
  EXPECT_EQ(TypeOfEncoding("float"), FieldType::kFloat);
  EXPECT_EQ(TypeOfEncoding("ndarray:int8"), FieldType::kNdarray);
  EXPECT_EQ(TypeOfEncoding("tf.texts"), FieldType::kJson);
  EXPECT_EQ(FieldTypeName(FieldType::kNdarray), "ndarray");
}

TEST(ClassNumber, OfShortDecimalNumbers) {
  EXPECT_EQ(ClassNumber("", AsBytes(" 12\n")), "12");
  EXPECT_EQ(ClassNumber("f4", AsBytes(Le<float>({7}))), "7");
  EXPECT_EQ(ClassNumber("f4", AsBytes(Le<float>({7.5}))), "");
  EXPECT_EQ(ClassNumber("i8", AsBytes(Le<int64_t>({-7}))), "");
  EXPECT_EQ(ClassNumber("", AsBytes("cat")), "");
  EXPECT_EQ(ClassNumber("", AsBytes("  ")), "");
}

TEST(Npy, ReadsWhatItWrites) {
  for (const std::string_view type : {"i1", "u1", "i2", "f2", "i4", "u4", "f4", "i8", "u8", "f8"}) {
    for (const std::vector<uint64_t>& shape : std::vector<std::vector<uint64_t>>{{}, {0}, {5}, {2, 3}, {1, 0, 7}}) {
      const NumberType number = *ParseNumberType(type);
      const std::string values(*CountOf(shape) * number.size, 'v');
      const std::string file = Npy(type, shape, values);
      const auto array = ParseNpy(AsBytes(file));
      ASSERT_TRUE(array) << type;
      EXPECT_EQ(array->type, number);
      EXPECT_EQ(array->shape, shape);
      EXPECT_EQ(AsText(array->values), values);
      EXPECT_EQ((file.size() - values.size()) % 64, 0U);
      for (size_t size = 0; size < file.size(); ++size) {
        EXPECT_FALSE(ParseNpy(AsBytes(file).first(size)));
      }
    }
  }
}

TEST(Npy, RefusesOthers) {
  std::string fortran = Npy("f4", {2}, "12345678");
  fortran.replace(fortran.find("False"), 5, "True ");
  EXPECT_FALSE(ParseNpy(AsBytes(fortran)));
  std::string big = Npy("f4", {2}, "12345678");
  big.replace(big.find("<f4"), 3, ">f4");
  EXPECT_FALSE(ParseNpy(AsBytes(big)));
  EXPECT_EQ(CountOf(std::vector<uint64_t>{uint64_t{1} << 40, uint64_t{1} << 40}), std::nullopt);
}

}  // namespace
}  // namespace millrace
