#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "decode/half_float.h"

namespace millrace {

/// Makes floats of u8 pixels: (v / 255 - mean) / std in each channel, exact to the last digit.
class PixelScale {
 public:
  using PerChannel = std::array<float, 3>;

  /// Chooses what the other members do. Calculates only where the numbers are not those of the last call.
  void Set(const PerChannel& mean, const PerChannel& std);

  float At(size_t channel, uint8_t value) const { return table_[channel][value]; }
  /// Converts `count` pixels of one channel that are stored side by side, to as many floats, which need not be aligned.
  void Plane(const uint8_t* from, size_t count, size_t channel, uint8_t* to) const;
  /// Converts `count` pixels of `channels` bytes each, to as many floats, which need not be aligned.
  void Packed(const uint8_t* from, size_t count, size_t channels, uint8_t* to) const;

 private:
  struct Scale {
    double factor = 0;
    double summand = 0;
    bool equals_table = false;  // for all 256 values, to the last bit
  };
  std::array<std::array<float, 256>, 3> table_{};
  std::array<Scale, 3> scale_{};
  PerChannel mean_{};
  PerChannel std_{};  // zeros: no table was built yet, as no image has them
};

/// Makes of u8 pixels the same numbers as halves, rounded as ToHalf does.
class HalfScale {
 public:
  HalfScale(const PixelScale& scale, HalfType type);

  /// These convert like those of PixelScale. The bits of a half take the place of each float.
  void Plane(const uint8_t* from, size_t count, size_t channel, uint8_t* to) const;
  void Packed(const uint8_t* from, size_t count, size_t channels, uint8_t* to) const;

 private:
  std::array<std::array<uint16_t, 256>, 3> table_{};
};

}  // namespace millrace
