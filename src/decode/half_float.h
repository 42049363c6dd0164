#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

/// These functions make floating-point numbers of 16 bits, which are IEEE 754's binary16, and the upper half of
/// binary32.
enum class HalfType : uint8_t { kF16, kBf16 };

/// Returns the bits of the nearest number of that type; of two that are as near, of the one whose last bit is 0. A
/// number that is too large becomes infinite, and NaN a quiet NaN.
uint16_t ToHalf(HalfType type, float value);
/// Converts `count` floats that are stored side by side. Neither they nor the results need be aligned.
void ToHalves(HalfType type, const uint8_t* from, size_t count, uint8_t* to);

}  // namespace millrace
