#include "decode/half_float.h"

#include <bit>
#include <cstring>

namespace millrace {

namespace {

constexpr uint32_t kSign = 0x80000000;
constexpr uint32_t kInfinity = 0x7f800000;
constexpr int kDropped = 13;  // of the 23 bits of a fraction: binary16 has 10

// Drops bits, to nearest, ties to even. A carry into the exponent is as it should be.
uint32_t WithoutBits(uint32_t bits, int count) {
  const uint32_t is_odd = (bits >> count) & 1;
  return (bits + (1u << (count - 1)) - 1 + is_odd) >> count;
}

uint16_t ToFloat16(float value) {
  constexpr uint32_t kTooLarge = 0x477ff000;     // 65520, halfway between the largest number and what would be the next
  constexpr uint32_t kLeastNormal = 0x38800000;  // 2^-14
  constexpr uint32_t kBias = (127 - 15) << 23;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & ~kSign;
  const uint32_t sign = (bits & kSign) >> 16;
  if (magnitude > kInfinity) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= kTooLarge) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < kLeastNormal) {
    // The last bit of a sum with 1/2 is worth 2^-24, as that of the smallest numbers: the addition rounds.
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - std::bit_cast<uint32_t>(0.5f)));
  }
  return static_cast<uint16_t>(sign | WithoutBits(magnitude - kBias, kDropped));
}

uint16_t ToBfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & ~kSign) > kInfinity) return 0x7fc0;
  return static_cast<uint16_t>(WithoutBits(bits, 16));
}

}  // namespace

uint16_t ToHalf(HalfType type, float value) {
  return type == HalfType::kF16 ? ToFloat16(value) : ToBfloat16(value);
}

void ToHalves(HalfType type, const uint8_t* from, size_t count, uint8_t* to) {
  for (size_t i = 0; i < count; ++i, from += sizeof(float), to += sizeof(uint16_t)) {
    float value;
    std::memcpy(&value, from, sizeof(value));
    const uint16_t half = ToHalf(type, value);
    std::memcpy(to, &half, sizeof(half));
  }
}

}  // namespace millrace
