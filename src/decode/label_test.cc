#include "decode/label.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

absl::StatusOr<LabelValue> Parse(std::string_view kind, std::string_view text) {
  absl::StatusOr<LabelSpec> spec = LabelSpec::Parse(kind);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return ParseLabel(AsBytes(text), *spec);
}

void ExpectError(absl::StatusCode code, std::string_view kind, std::string_view text, std::string_view part) {
  const auto value = Parse(kind, text);
  ASSERT_FALSE(value.ok()) << kind << ": " << text;
  EXPECT_EQ(value.status().code(), code);
  EXPECT_NE(ToStd(value.status().message()).find(part), std::string_view::npos) << value.status();
}

void ExpectDataLoss(std::string_view kind, std::string_view text, std::string_view part) {
  ExpectError(absl::StatusCode::kDataLoss, kind, text, part);
}

// The text is sound, but of another kind than was asked for.
void ExpectOtherKind(std::string_view kind, std::string_view text, std::string_view part) {
  ExpectError(absl::StatusCode::kInvalidArgument, kind, text, part);
}

TEST(LabelTest, Integers) {
  EXPECT_EQ(*Parse("int", "7"), LabelValue(int64_t{7}));
  EXPECT_EQ(*Parse("int", " -12\r\n"), LabelValue(int64_t{-12}));
  EXPECT_EQ(*Parse("int", "0009"), LabelValue(int64_t{9}));
  EXPECT_EQ(*Parse("int", "9223372036854775807\n"), LabelValue(INT64_MAX));
  EXPECT_EQ(*Parse("int", "-9223372036854775808"), LabelValue(INT64_MIN));
}

TEST(LabelTest, WhatIsNotAnInteger) {
  for (const std::string_view text : {"", " ", "\n", "x", "1 2", "0x10", "--1", "+1", "9223372036854775808", "1e3"}) {
    ExpectDataLoss("int", text, "not an integer");
  }
  ExpectDataLoss("int", std::string_view("1\0", 2), "\"1?\"");
}

TEST(LabelTest, Floats) {
  EXPECT_EQ(*Parse("float", "7"), LabelValue(7.0));
  EXPECT_EQ(*Parse("float", " -1.25e3\n"), LabelValue(-1250.0));
  EXPECT_EQ(*Parse("json-float:a.1", R"({"a": [1, 2.5]})"), LabelValue(2.5));
  EXPECT_EQ(*Parse("json-float:a.0", R"({"a": [1, 2.5]})"), LabelValue(1.0));
  ExpectDataLoss("float", "1.5x", "not a number");
  ExpectDataLoss("json-float:a", R"({"a": "1"})", "no number");
}

TEST(LabelTest, SoundLabelsOfAnotherKindAreNoDamage) {
  ExpectOtherKind("int", "1.5", "kind float");
  ExpectOtherKind("int", "nan", "kind float");
  ExpectOtherKind("int", " [1, 2]\n", "json:PATH");
  ExpectOtherKind("float", R"({"label": 1})", "json:PATH");
  ExpectOtherKind("int", "\x93NUMPY...", "is an array");
  ExpectOtherKind("json:a", R"({"a": 2.5})", "json-float:a");
  ExpectDataLoss("int", "[1, 2", "not an integer");
}

TEST(LabelTest, Text) {
  EXPECT_EQ(*Parse("text", "tabby cat\n"), LabelValue(std::string("tabby cat\n")));
  EXPECT_EQ(*Parse("text", ""), LabelValue(std::string()));
  const std::string all = "a\u00e9\u20ac\U0001f600\xf4\x8f\xbf\xbf";
  EXPECT_EQ(*Parse("text", all), LabelValue(all));
}

TEST(LabelTest, WhatIsNotUtf8) {
  for (const std::string_view bytes :
       {"\x80", "\xc0\xaf", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xc3(", "\xff"}) {
    ExpectDataLoss("text", std::string("ok") + std::string(bytes), "not UTF-8 at byte 2");
  }
}

TEST(LabelTest, JsonFields) {
  constexpr std::string_view kText =
      R"({"label": 3, "a": {"b": [{"c": "x"}, 2.5]}, "big": 18446744073709551615, "": {"": -4}, "t": true})";
  EXPECT_EQ(*Parse("json:label", kText), LabelValue(int64_t{3}));
  EXPECT_EQ(*Parse("json-text:a.b.0.c", kText), LabelValue(std::string("x")));
  ExpectOtherKind("json:a.b.1", kText, "json-float:a.b.1");
  ExpectDataLoss("json:a.b.0.c", kText, "no integer");
  ExpectDataLoss("json-text:label", kText, "no string");
  EXPECT_EQ(*Parse("json:.", kText), LabelValue(int64_t{-4}));
  ExpectDataLoss("json:none", kText, "has no \"none\"");
  ExpectDataLoss("json:a.b.2", kText, "has no \"2\" (of the path \"a.b.2\")");
  ExpectDataLoss("json:a.b.-1", kText, "has no \"-1\"");
  ExpectDataLoss("json:a.b.x", kText, "has no \"x\"");
  ExpectDataLoss("json:label.x", kText, "has no \"x\"");
  ExpectDataLoss("json:big", kText, "no integer of 64 bits");
  ExpectDataLoss("json:t", kText, "no integer");
  ExpectDataLoss("json:a", kText, "no integer");
}

TEST(LabelTest, BrokenJson) {
  for (const std::string_view text :
       {"", "{", "{\"a\": 1", "{\"a\": 1} x", "{a: 1}", "{\"a\": 1e999}", "{\"a\": \"\xff\"}"}) {
    ExpectDataLoss("json:a", text, "not JSON");
  }
  ExpectDataLoss("json:a", std::string(200'000, '['), "not JSON");
}

TEST(LabelTest, DeepNestingDoesNotExhaustTheStack) {
  // The text is as deep as a field can be: each '[' is a level.
  const std::string open(kMaxLabelBytes, '[');
  EXPECT_EQ(ParseLabel(AsBytes(open), *LabelSpec::Parse("json:0")).status().code(), absl::StatusCode::kDataLoss);
  const size_t levels = kMaxLabelBytes / 2;
  const std::string closed = std::string(levels, '[') + std::string(levels, ']');
  EXPECT_EQ(ParseLabel(AsBytes(closed), *LabelSpec::Parse("json:0")).status().code(), absl::StatusCode::kDataLoss);
}

TEST(LabelTest, SizeIsBounded) {
  ExpectDataLoss("text", std::string(kMaxLabelBytes + 1, 'a'), "limit");
  EXPECT_TRUE(Parse("text", std::string(kMaxLabelBytes, 'a')).ok());
}

TEST(LabelTest, UnknownKinds) {
  for (const std::string_view kind : {"", "integer", "json", "json:", "json-text:", "INT"}) {
    EXPECT_EQ(LabelSpec::Parse(kind).status().code(), absl::StatusCode::kInvalidArgument) << kind;
  }
}

}  // namespace
}  // namespace millrace
