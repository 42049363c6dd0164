#include "decode/half_float.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "decode/pixel_scale.h"

namespace millrace {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Returns the number that the bits stand for, by the definition of the type.
double ValueOf(HalfType type, uint16_t bits) {
  const int fraction_bits = type == HalfType::kF16 ? 10 : 7, bias = type == HalfType::kF16 ? 15 : 127;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int exponent = (bits & 0x7fff) >> fraction_bits;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                                         : std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  return bits & 0x8000 ? -magnitude : magnitude;
}

uint16_t InfinityOf(HalfType type) {
  return type == HalfType::kF16 ? 0x7c00 : 0x7f80;
}

class HalfFloat : public ::testing::TestWithParam<HalfType> {};

// Between all neighbours: the middle becomes the even one, and what is next to it the nearer one.
TEST_P(HalfFloat, RoundsToNearestEven) {
  const HalfType type = GetParam();
  for (uint16_t bits = 0; bits < InfinityOf(type); ++bits) {
    const auto next = static_cast<uint16_t>(bits + 1);
    const auto low = static_cast<float>(ValueOf(type, bits));
    const double above = ValueOf(type, next);  // of the largest number, what would be the next
    const double middle = (ValueOf(type, bits) + above) / 2;
    ASSERT_EQ(ToHalf(type, low), bits);
    ASSERT_EQ(ToHalf(type, -low), bits | 0x8000);
    if (middle > std::numeric_limits<float>::max()) continue;
    const auto tie = static_cast<float>(middle);
    ASSERT_EQ(double{tie}, middle) << "a float can hold it";
    const uint16_t even = bits % 2 == 0 ? bits : next;
    ASSERT_EQ(ToHalf(type, tie), even) << bits;
    ASSERT_EQ(ToHalf(type, -tie), even | 0x8000) << bits;
    ASSERT_EQ(ToHalf(type, std::nextafter(tie, 0.0f)), bits);
    ASSERT_EQ(ToHalf(type, std::nextafter(tie, kInf)), next);
  }
}

TEST_P(HalfFloat, HasInfinitiesAndNan) {
  const HalfType type = GetParam();
  const uint16_t infinity = InfinityOf(type);
  EXPECT_EQ(ToHalf(type, kInf), infinity);
  EXPECT_EQ(ToHalf(type, -kInf), infinity | 0x8000);
  EXPECT_EQ(ToHalf(type, std::numeric_limits<float>::max()), infinity);
  for (const uint32_t nan : {0x7fc00000u, 0x7f800001u, 0xffffffffu}) {
    EXPECT_GT(ToHalf(type, std::bit_cast<float>(nan)) & 0x7fff, infinity);
  }
}

TEST_P(HalfFloat, RowsAreWhatEachNumberIs) {
  const HalfType type = GetParam();
  const std::vector<float> values = {0.0f, -0.0f, 1.0f / 3, -2.1179f, 1e-7f, 70000.0f};
  std::vector<uint8_t> from(values.size() * sizeof(float) + 1), to(values.size() * sizeof(uint16_t) + 1);
  std::memcpy(from.data() + 1, values.data(), values.size() * sizeof(float));  // not aligned
  ToHalves(type, from.data() + 1, values.size(), to.data() + 1);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half;
    std::memcpy(&half, to.data() + 1 + i * sizeof(half), sizeof(half));
    EXPECT_EQ(half, ToHalf(type, values[i]));
  }
}

TEST_P(HalfFloat, PixelsAreTheRoundedFloats) {
  const HalfType type = GetParam();
  PixelScale scale;
  scale.Set({0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f});
  const HalfScale halves(scale, type);
  std::vector<uint8_t> pixels(3 * 256);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 7);
  std::vector<uint16_t> packed(pixels.size()), plane(pixels.size());
  halves.Packed(pixels.data(), 256, 3, reinterpret_cast<uint8_t*>(packed.data()));
  halves.Plane(pixels.data(), pixels.size(), 1, reinterpret_cast<uint8_t*>(plane.data()));
  for (size_t i = 0; i < pixels.size(); ++i) {
    EXPECT_EQ(packed[i], ToHalf(type, scale.At(i % 3, pixels[i])));
    EXPECT_EQ(plane[i], ToHalf(type, scale.At(1, pixels[i])));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, HalfFloat, ::testing::Values(HalfType::kF16, HalfType::kBf16));

}  // namespace
}  // namespace millrace
