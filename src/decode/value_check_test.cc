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

// As many as an embedding that went wrong has: each must not cost a copy of all.
TEST(ValueCheckTest, JsonMayHoldManySpecialNumbers) {
  std::string text = "[0";
  for (int i = 0; i < 300'000; ++i) text += i % 3 == 0 ? ",NaN" : i % 3 == 1 ? ",-Infinity" : ",Infinity";
  EXPECT_TRUE(absl::IsDataLoss(CheckJson(AsBytes(text))));
  EXPECT_TRUE(CheckJson(AsBytes(text + "]")).ok());
}

TEST(ValueCheckTest, JsonIsWhatPythonTakes) {
  for (const std::string_view text :
       {"{}"sv, " [1, 2.5e3, null] \n"sv, "\"x\""sv, "{\"score\": NaN, \"most\": [Infinity, -Infinity]}"sv}) {
    EXPECT_TRUE(CheckJson(AsBytes(text)).ok()) << text;
  }
  for (const std::string_view text : {""sv, "{"sv, "{'a': 1}"sv, "[1,]"sv, "NaNs"sv, "\"\xff\""sv, "{} {}"sv}) {
    EXPECT_TRUE(absl::IsDataLoss(CheckJson(AsBytes(text)))) << text;
  }
}

}  // namespace
}  // namespace millrace
