#include "base/number.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>

namespace millrace {
namespace {

TEST(NumberTest, ReadsWholeNumbers) {
  EXPECT_EQ(ParseNumber<uint64_t>("0"), 0u);
  EXPECT_EQ(ParseNumber<uint64_t>("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(ParseNumber<uint64_t>("007"), 7u);
  EXPECT_EQ(ParseNumber<int>("-3"), -3);
  EXPECT_EQ(ParseNumber<uint32_t>("ff", 16), 255u);
}

TEST(NumberTest, RefusesAllElse) {
  for (const std::string_view text : {"", " 1", "1 ", "+1", "-1", "1x", "0x1", "1.0", "18446744073709551616"})
    EXPECT_FALSE(ParseNumber<uint64_t>(text)) << text;
  EXPECT_FALSE(ParseNumber<uint8_t>("256"));
  EXPECT_FALSE(ParseNumber<uint32_t>("12", 2));
}

TEST(NumberTest, LeavesTheNumberAloneUnlessItIsOne) {
  int number = 5;
  EXPECT_FALSE(ParseNumber("12x", &number));
  EXPECT_EQ(number, 5);
  EXPECT_TRUE(ParseNumber("12", &number));
  EXPECT_EQ(number, 12);
}

TEST(NumberTest, KnowsLowerHex) {
  EXPECT_TRUE(IsLowerHex("0123456789abcdef"));
  EXPECT_TRUE(IsLowerHex(""));
  for (const std::string_view text : {"A", "g", "0x1", " 1"}) EXPECT_FALSE(IsLowerHex(text)) << text;
}

TEST(NumberTest, ReadsReals) {
  EXPECT_EQ(ParseNumber<double>("1e3"), 1000.0);
  EXPECT_EQ(ParseNumber<double>("-0.5"), -0.5);
  for (const std::string_view text : {"", "1.5x", "+1.5", "1e999"}) EXPECT_FALSE(ParseNumber<double>(text)) << text;
}

}  // namespace
}  // namespace millrace
