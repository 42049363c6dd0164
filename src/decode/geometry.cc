#include "decode/geometry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/rng.h"

namespace millrace {
namespace {

constexpr uint64_t kCropDomain = 0x63726f70;  // "crop"
constexpr uint64_t kFlipDomain = 0x666c6970;  // "flip"
constexpr int kCropTries = 10;

/// round(n / 2.0) as Python does it: half to even. n >= 0.
int RoundHalf(int n) {
  const int floor = n / 2;
  return n % 2 == 0 ? floor : floor + floor % 2;
}

/// round(x) as Python does it, for x that is not negative.
int64_t RoundToEven(double x) {
  const double floor = std::floor(x);
  const double rest = x - floor;
  const auto whole = static_cast<int64_t>(floor);
  if (rest != 0.5) return whole + (rest > 0.5 ? 1 : 0);
  return whole + whole % 2;
}

/// low * (high / low)^u: log-uniform for a uniform u in [0, 1). Built from the bits of u with square roots alone,
/// because exp and log differ in the last digit between versions of the C library.
double LogUniform(double low, double high, double u) {
  double value = low;
  double root = high / low;
  for (int bit = 0; bit < 32; ++bit) {
    root = std::sqrt(root);
    u *= 2;
    if (u >= 1) {
      u -= 1;
      value *= root;
    }
  }
  return value;
}

SourceCrop WholePixels(int left, int top, int width, int height) {
  return {.x = static_cast<double>(left),
          .y = static_cast<double>(top),
          .width = static_cast<double>(width),
          .height = static_cast<double>(height),
          .left = left,
          .top = top,
          .right = left + width,
          .bottom = top + height};
}

/// The largest central crop whose ratio is allowed: where torchvision ends when no try fits.
SourceCrop FallbackCrop(ImageSize image, const ImageSpec& spec) {
  const double ratio = static_cast<double>(image.width) / image.height;
  int width = image.width;
  int height = image.height;
  if (ratio < spec.crop_ratio[0]) {
    height = static_cast<int>(std::clamp<int64_t>(RoundToEven(width / spec.crop_ratio[0]), 1, image.height));
  } else if (ratio > spec.crop_ratio[1]) {
    width = static_cast<int>(std::clamp<int64_t>(RoundToEven(height * spec.crop_ratio[1]), 1, image.width));
  }
  return WholePixels((image.width - width) / 2, (image.height - height) / 2, width, height);
}

SourceCrop DrawCrop(ImageSize image, const ImageSpec& spec, Rng& rng) {
  const double area = static_cast<double>(image.width) * image.height;
  for (int i = 0; i < kCropTries; ++i) {
    const double target = area * (spec.crop_scale[0] + (spec.crop_scale[1] - spec.crop_scale[0]) * rng.Unit());
    const double ratio = LogUniform(spec.crop_ratio[0], spec.crop_ratio[1], rng.Unit());
    const double width = std::sqrt(target * ratio);
    const double height = std::sqrt(target / ratio);
    // Compared as doubles first: an extreme ratio may exceed every integer.
    if (width >= image.width + 1.0 || height >= image.height + 1.0) continue;
    const int64_t w = RoundToEven(width);
    const int64_t h = RoundToEven(height);
    if (w < 1 || h < 1 || w > image.width || h > image.height) continue;
    const auto top = static_cast<int>(rng.Below(image.height - h + 1));
    const auto left = static_cast<int>(rng.Below(image.width - w + 1));
    return WholePixels(left, top, static_cast<int>(w), static_cast<int>(h));
  }
  return FallbackCrop(image, spec);
}

}  // namespace

SourceCrop CenterCrop(ImageSize image, const ImageSpec& spec) {
  // The size after the resize that just covers the output.
  int64_t resized_width = spec.width;
  int64_t resized_height = spec.height;
  if (int64_t{image.width} * spec.height <= int64_t{image.height} * spec.width) {
    resized_height = int64_t{image.height} * spec.width / image.width;
  } else {
    resized_width = int64_t{image.width} * spec.height / image.height;
  }
  const double scale_x = static_cast<double>(image.width) / static_cast<double>(resized_width);
  const double scale_y = static_cast<double>(image.height) / static_cast<double>(resized_height);
  const int left = RoundHalf(static_cast<int>(resized_width - spec.width));
  const int top = RoundHalf(static_cast<int>(resized_height - spec.height));
  return {.x = left * scale_x,
          .y = top * scale_y,
          .width = spec.width * scale_x,
          .height = spec.height * scale_y,
          .left = 0,
          .top = 0,
          .right = image.width,
          .bottom = image.height};
}

SourceCrop RandomCrop(ImageSize image, const ImageSpec& spec, uint64_t key) {
  Rng rng(HashKey(kCropDomain, {key}));
  SourceCrop crop = DrawCrop(image, spec, rng);
  // A draw of its own, so that the number of tries does not decide it.
  crop.flip = Rng(HashKey(kFlipDomain, {key})).Unit() < spec.flip_probability;
  return crop;
}

absl::StatusOr<SourceCrop> CropLike(ImageSize image, const Frame& leader) {
  const ImageSize of = leader.image;
  const int64_t skew = int64_t{image.width} * of.height - int64_t{image.height} * of.width;
  // A copy of another size has sides that are rounded to whole pixels.
  if (std::abs(skew) > int64_t{of.width} + of.height) {
    return absl::DataLossError(
        fmt::format("{} x {} pixels, and the image whose crop it follows has {} x {}: they do not show the same scene",
                    image.width, image.height, of.width, of.height));
  }
  SourceCrop crop = leader.crop;
  if (image.width == of.width && image.height == of.height) return crop;
  const double x = static_cast<double>(image.width) / of.width;
  const double y = static_cast<double>(image.height) / of.height;
  crop.x *= x;
  crop.width *= x;
  crop.y *= y;
  crop.height *= y;
  const auto down = [](double position, int most) {
    return std::clamp(static_cast<int>(std::floor(position)), 0, most - 1);
  };
  crop.left = down(crop.left * x, image.width);
  crop.top = down(crop.top * y, image.height);
  crop.right = std::clamp(static_cast<int>(std::ceil(crop.right * x)), crop.left + 1, image.width);
  crop.bottom = std::clamp(static_cast<int>(std::ceil(crop.bottom * y)), crop.top + 1, image.height);
  return crop;
}

void NearestPixels(double from, double size, int low, int high, int outputs, bool reverse, std::vector<int>* pixels) {
  pixels->resize(static_cast<size_t>(outputs));
  const double scale = size / outputs;
  for (int i = 0; i < outputs; ++i) {
    const auto pixel = static_cast<int>(std::floor(from + (i + 0.5) * scale));
    (*pixels)[static_cast<size_t>(reverse ? outputs - 1 - i : i)] = std::clamp(pixel, low, high - 1);
  }
}

int ChooseDenominator(const SourceCrop& crop, const ImageSpec& spec) {
  for (const int denominator : {8, 4, 2}) {
    if (crop.width >= static_cast<double>(denominator) * spec.width &&
        crop.height >= static_cast<double>(denominator) * spec.height) {
      return denominator;
    }
  }
  return 1;
}

}  // namespace millrace
