#include "base/compressed_size.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

TEST(CompressedSize, TellsNoiseFromRepetition) {
  const std::string same(100'000, 'x');
  EXPECT_LT(CompressedSize(AsBytes(same)), 100U);
  std::string noise;
  for (uint32_t state = 1; noise.size() < 100'000; state = state * 1664525U + 1013904223U) {
    noise += static_cast<char>(state >> 24U);
  }
  EXPECT_GT(CompressedSize(AsBytes(noise)), 99'000U);
  EXPECT_EQ(CompressedSize({}), 0U);
}

}  // namespace
}  // namespace millrace
