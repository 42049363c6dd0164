#include "decode/row_reader.h"

#include <fmt/format.h>

namespace millrace {

namespace {

/// Returns (a * b) / 255, rounded.
uint8_t MulDiv255(int a, int b) {
  const int product = a * b + 128;
  return static_cast<uint8_t>(((product >> 8) + product) >> 8);
}

}  // namespace

absl::Status CheckImageSize(int64_t width, int64_t height) {
  if (width < 1 || height < 1) {
    return absl::DataLossError(fmt::format("the image claims to have {} x {} pixels", width, height));
  }
  if (width > kMaxImageSide || height > kMaxImageSide || width * height > kMaxImagePixels) {
    return absl::InvalidArgumentError(fmt::format(
        "an image of {} x {} pixels is refused: the limits are {} a side and {} in all, against files that claim "
        "enormous sizes; shrink it when packing",
        width, height, kMaxImageSide, kMaxImagePixels));
  }
  return absl::OkStatus();
}

absl::Status NotNumbers(std::string_view what) {
  return absl::InvalidArgumentError(
      fmt::format("{} holds colours, and a map of numbers is wanted; store it as PNG with a palette, or grey of up to "
                  "8 bits, or decode it as an image (channels 1 or 3)",
                  what));
}

void RgbxFromInvertedCmyk(uint8_t* pixels, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uint8_t* const p = pixels + 4 * i;
    const int light = p[3];
    for (int c = 0; c < 3; ++c) p[c] = static_cast<uint8_t>(light - MulDiv255(255 - p[c], light));
  }
}

void GreyFromRgbx(const uint8_t* rgbx, size_t pixels, uint8_t* grey) {
  for (size_t i = 0; i < pixels; ++i) {
    const uint8_t* p = rgbx + 4 * i;
    grey[i] = static_cast<uint8_t>((p[0] * 19595 + p[1] * 38470 + p[2] * 7471 + 0x8000) >> 16);
  }
}

}  // namespace millrace
