#include "decode/value_check.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

using namespace std::string_view_literals;

TEST(ValueCheckTest, TextIsUtf8) {
  for (const std::string_view text : {""sv, "plain"sv, "gr\xc3\xb6\xc3\x9f"sv, "with\0nul"sv}) {
    EXPECT_TRUE(CheckText(AsBytes(text)).ok()) << text;
  }
  for (const std::string_view text : {"\xff"sv, "cut \xc3"sv}) {
    EXPECT_TRUE(absl::IsDataLoss(CheckText(AsBytes(text)))) << text;
  }
}

// There are as many as an embedding that went wrong has: each must not cost a copy of all.
TEST(ValueCheckTest, JsonMayHoldManySpecialNumbers) {
  std::string text = "[0";
  for (int i = 0; i < 300'000; ++i) text += i % 3 == 0 ? ",NaN" : i % 3 == 1 ? ",-Infinity" : ",Infinity";
  EXPECT_TRUE(absl::IsDataLoss(CheckJson(AsBytes(text))));
  EXPECT_TRUE(CheckJson(AsBytes(text + "]")).ok());
}

TEST(ValueCheckTest, JsonMayHave500Levels) {
  const auto takes = [](size_t levels, const std::string& within) {
    return CheckJson(AsBytes(std::string(levels, '[') + within + std::string(levels, ']'))).ok();
  };
  EXPECT_TRUE(takes(500, "") && takes(500, "1"));
  EXPECT_FALSE(takes(501, "") || takes(501, "1") || takes(200'000, ""));
}

TEST(ValueCheckTest, WholeNumbersAreBounded) {
  EXPECT_TRUE(CheckJson(AsBytes(std::string(4300, '1'))).ok());
  EXPECT_FALSE(CheckJson(AsBytes(std::string(4301, '1'))).ok());
}

TEST(ValueCheckTest, JsonIsWhatPythonTakes) {
  for (const std::string_view text :
       {"{}"sv, " [1, 2.5e3, null] \n"sv, "\"x\""sv, "{\"score\": NaN, \"most\": [Infinity, -Infinity]}"sv,
        "\xef\xbb\xbf{}"sv, "[1e400, -0, 0.5, 1E+2, 123456789012345678901234567890]"sv, "\"\\ud800 \xed\xa0\x80\""sv,
        "{\"\": {\"a\": [[], {}, [[{}]]]}, \"b\": \"\\u00e9\\/\\\"\"}"sv, "\xff\xfe{\0\"\0\xe9\0\"\0:\0\x31\0}\0"sv,
        "\0{\0}"sv, "{\0}\0"sv, "\xff\xfe\0\0[\0\0\0]\0\0\0"sv, "\0\0\0\x31"sv, "true"sv}) {
    EXPECT_TRUE(CheckJson(AsBytes(text)).ok()) << text;
  }
  for (const std::string_view text :
       {""sv,         " "sv,      "{"sv,       "{'a': 1}"sv,    "[1,]"sv,     "NaNs"sv,
        "\"\xff\""sv, "{} {}"sv,  "[}"sv,      "{\"a\" 1}"sv,   "{\"a\":}"sv, "{,}"sv,
        "[1 2]"sv,    "01"sv,     "1."sv,      "-"sv,           "1e"sv,       "+1"sv,
        ".5"sv,       "\"\t\""sv, "\"\\x\""sv, "\"\\u12g4\""sv, "\""sv,       "\xff\xfe{\0}"sv,
        "\x0b{}"sv,   "[[]"sv,    "]"sv,       "nul"sv,         "-Infinit"sv, "\0\x11\0\0"sv}) {
    EXPECT_TRUE(absl::IsDataLoss(CheckJson(AsBytes(text)))) << text;
  }
}

}  // namespace
}  // namespace millrace
