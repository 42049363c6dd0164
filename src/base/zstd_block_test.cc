#include "base/zstd_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace millrace {
namespace {

TEST(ZstdBlockTest, PiecesComeBackAsOne) {
  const std::string first(1000, 'a');
  std::string second;
  for (int i = 0; i < 40'000; ++i) second += std::to_string(i % 97) + '\0';
  const std::vector<ByteSpan> pieces{AsBytes(first), ByteSpan(), AsBytes(second)};
  const std::optional<Buffer> packed = CompressBlock(pieces);
  ASSERT_TRUE(packed);
  EXPECT_LT(packed->size(), second.size() / 4);
  std::string out(first.size() + second.size(), '\0');
  const MutableByteSpan room = std::as_writable_bytes(std::span(out));
  ASSERT_TRUE(DecompressBlock(packed->span(), room));
  EXPECT_EQ(out, first + second);
  EXPECT_FALSE(DecompressBlock(packed->span(), room.first(out.size() - 1))) << "too little room";
  std::string longer(out.size() + 1, '\0');
  EXPECT_FALSE(DecompressBlock(packed->span(), std::as_writable_bytes(std::span(longer)))) << "too much";
  EXPECT_FALSE(DecompressBlock(packed->span().first(packed->size() / 2), room));
  EXPECT_FALSE(DecompressBlock({}, room));
}

TEST(ZstdBlockTest, WhatDoesNotShrinkIsLeftAlone) {
  std::mt19937 random(1);
  std::string noise(100'000, '\0');
  std::generate(noise.begin(), noise.end(), [&] { return static_cast<char>(random()); });
  EXPECT_FALSE(CompressBlock(std::vector<ByteSpan>{AsBytes(noise)}));
  EXPECT_FALSE(CompressBlock(std::vector<ByteSpan>{}));
}

}  // namespace
}  // namespace millrace
