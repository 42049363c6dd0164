#include "shard/token_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename To, typename From>
absl::StatusOr<std::vector<To>> Converted(std::string_view name, const std::vector<From>& stored) {
  std::vector<To> out(stored.size());
  const ByteSpan bytes{reinterpret_cast<const std::byte*>(stored.data()), stored.size() * sizeof(From)};
  const absl::Status status =
      ConvertTokens(*ParseNumberType(name), bytes, sizeof(To) == 4 ? TokenType::kInt32 : TokenType::kInt64,
                    reinterpret_cast<std::byte*>(out.data()));
  if (!status.ok()) return status;
  return out;
}

template <typename From>
void CheckType(std::string_view name) {
  const From least = std::numeric_limits<From>::min();
  const From most = std::numeric_limits<From>::max();
  const std::vector<From> stored{0, 1, 100, least, most};
  const absl::StatusOr<std::vector<int64_t>> wide = Converted<int64_t>(name, stored);
  if (std::in_range<int64_t>(most)) {
    ASSERT_TRUE(wide.ok()) << wide.status();
    EXPECT_THAT(*wide, ElementsAre(0, 1, 100, static_cast<int64_t>(least), static_cast<int64_t>(most)));
  } else {
    EXPECT_TRUE(absl::IsDataLoss(wide.status()));
  }
  const absl::StatusOr<std::vector<int32_t>> narrow = Converted<int32_t>(name, stored);
  if (std::in_range<int32_t>(most)) {
    ASSERT_TRUE(narrow.ok()) << narrow.status();
    EXPECT_THAT(*narrow, ElementsAre(0, 1, 100, static_cast<int32_t>(least), static_cast<int32_t>(most)));
  } else {
    EXPECT_TRUE(absl::IsDataLoss(narrow.status()));
    EXPECT_THAT(std::string(narrow.status().message()), HasSubstr("does not fit into int32"));
  }
}

TEST(TokenValues, ConvertsEveryTypeOrSaysWhatDoesNotFit) {
  CheckType<int8_t>("i1");
  CheckType<uint8_t>("u1");
  CheckType<int16_t>("i2");
  CheckType<uint16_t>("u2");
  CheckType<int32_t>("i4");
  CheckType<uint32_t>("u4");
  CheckType<int64_t>("i8");
  CheckType<uint64_t>("u8");
}

TEST(TokenValues, FillsWithOneToken) {
  std::vector<int32_t> narrow(3);
  FillTokens(TokenType::kInt32, -100, reinterpret_cast<std::byte*>(narrow.data()), 3);
  EXPECT_THAT(narrow, ElementsAre(-100, -100, -100));
  std::vector<int64_t> wide(2);
  FillTokens(TokenType::kInt64, 1'000'000'000'000, reinterpret_cast<std::byte*>(wide.data()), 2);
  EXPECT_THAT(wide, ElementsAre(1'000'000'000'000, 1'000'000'000'000));
}

TEST(TokenValues, CountsTheHeadOfArraysOfMds) {
  const NumberType int32 = *ParseNumberType("i4");
  for (const uint64_t tokens : {0, 1, 255, 256, 65535, 65536, 1'000'000}) {
    const uint64_t head = tokens < 256 ? 2 : tokens < 65536 ? 3 : 5;
    EXPECT_EQ(TokenHeadBytes("ndarray:int32", int32, head + 4 * tokens), head) << tokens;
    EXPECT_EQ(TokenHeadBytes("ndarray:int32:7", int32, 4 * tokens), 0u);
    EXPECT_EQ(TokenHeadBytes("i4s", int32, 4 * tokens), 0u);
  }
  for (const uint64_t bytes : {0, 1, 3, 4, 5, 7}) EXPECT_FALSE(TokenHeadBytes("ndarray:int32", int32, bytes)) << bytes;
  EXPECT_EQ(TokenHeadMark(2), std::byte{4});
  EXPECT_EQ(TokenHeadMark(3), std::byte{5});
  EXPECT_EQ(TokenHeadMark(5), std::byte{6});
}

TEST(TokenValues, TakesArraysOfWholeNumbersWithoutAHead) {
  EXPECT_EQ(*TokensOfEncoding("u2s"), *ParseNumberType("u2"));
  EXPECT_EQ(*TokensOfEncoding("ndarray:int32:2048"), *ParseNumberType("i4"));
  EXPECT_EQ(*TokensOfEncoding("ndarray:uint16"), *ParseNumberType("u2"));
  for (const std::string_view other :
       {"", "text", "npy", "tf.ints", "ndarray", "u2", "s", "ndarray:x:4", "ndarray:x"}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(TokensOfEncoding(other).status())) << other;
  }
  EXPECT_THAT(std::string(TokensOfEncoding("f4s").status().message()), HasSubstr("float32; tokens are whole numbers"));
}

}  // namespace
}  // namespace millrace
