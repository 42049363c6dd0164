#include "decode/pixel_scale.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "decode/resample_kernels.h"

namespace millrace {

// Computes all that normalization can yield. It is calculated in a simpler way, many at a time, if that yields the very
// same, which nearly always is so.
void PixelScale::Set(const PerChannel& mean, const PerChannel& std) {
  if (mean_ == mean && std_ == std) return;
  for (size_t c = 0; c < table_.size(); ++c) {
    for (size_t v = 0; v < table_[c].size(); ++v) {
      table_[c][v] = static_cast<float>((static_cast<double>(v) / 255.0 - double{mean[c]}) / double{std[c]});
    }
    Scale& scale = scale_[c];
    scale = {.factor = 1 / (255 * double{std[c]}), .summand = -double{mean[c]} / double{std[c]}};
    std::array<float, 256> simple;
    for (size_t v = 0; v < simple.size(); ++v) {
      simple[v] = static_cast<float>(static_cast<double>(v) * scale.factor + scale.summand);
    }
    const auto has_same_bits = [](float a, float b) {
      return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
    };
    scale.equals_table = std::equal(simple.begin(), simple.end(), table_[c].begin(), has_same_bits);
  }
  mean_ = mean;
  std_ = std;
}

void PixelScale::Plane(const uint8_t* from, size_t count, size_t channel, uint8_t* to) const {
  const Scale& scale = scale_[channel];
  if (scale.equals_table) return kernels::ScaleBytes(from, count, scale.factor, scale.summand, to);
  const float* const table = table_[channel].data();
  for (size_t i = 0; i < count; ++i, to += sizeof(float)) std::memcpy(to, &table[from[i]], sizeof(float));
}

void PixelScale::Packed(const uint8_t* from, size_t count, size_t channels, uint8_t* to) const {
  if (channels == 1) return Plane(from, count, 0, to);
  for (size_t i = 0; i < count; ++i) {
    for (size_t c = 0; c < channels; ++c, to += sizeof(float)) {
      std::memcpy(to, &table_[c][*from++], sizeof(float));
    }
  }
}

HalfScale::HalfScale(const PixelScale& scale, HalfType type) {
  for (size_t c = 0; c < table_.size(); ++c) {
    for (size_t v = 0; v < table_[c].size(); ++v) table_[c][v] = ToHalf(type, scale.At(c, static_cast<uint8_t>(v)));
  }
}

void HalfScale::Plane(const uint8_t* from, size_t count, size_t channel, uint8_t* to) const {
  const uint16_t* const table = table_[channel].data();
  for (size_t i = 0; i < count; ++i, to += sizeof(uint16_t)) std::memcpy(to, &table[from[i]], sizeof(uint16_t));
}

void HalfScale::Packed(const uint8_t* from, size_t count, size_t channels, uint8_t* to) const {
  if (channels == 1) return Plane(from, count, 0, to);
  for (size_t i = 0; i < count; ++i) {
    for (size_t c = 0; c < channels; ++c, to += sizeof(uint16_t)) {
      std::memcpy(to, &table_[c][*from++], sizeof(uint16_t));
    }
  }
}

}  // namespace millrace
