#include "decode/warp.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "decode/exact_math.h"

namespace millrace {
namespace {

constexpr double kFixed = 65'536;

int64_t Fixed(double value) {
  return static_cast<int64_t>(std::floor(value * kFixed + 0.5));
}

// Computes in fixed point, with the sums that Pillow has.
void WarpNearest(const std::array<double, 6>& m, const Pixels& from, Pixels* to) {
  const auto channels = static_cast<size_t>(from.channels);
  const std::array<int64_t, 4> step = {Fixed(m[0]), Fixed(m[1]), Fixed(m[3]), Fixed(m[4])};
  int64_t line_x = Fixed(m[2] + m[0] * 0.5 + m[1] * 0.5);
  int64_t line_y = Fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
  for (int y = 0; y < to->height; ++y, line_x += step[1], line_y += step[3]) {
    uint8_t* out = to->row(y);
    int64_t at_x = line_x;
    int64_t at_y = line_y;
    for (int x = 0; x < to->width; ++x, at_x += step[0], at_y += step[2], out += channels) {
      const int64_t source_x = at_x >> 16;
      const int64_t source_y = at_y >> 16;
      if (source_x < 0 || source_x >= from.width || source_y < 0 || source_y >= from.height) continue;
      std::memcpy(out, from.row(static_cast<int>(source_y)) + static_cast<size_t>(source_x) * channels, channels);
    }
  }
}

void WarpBilinear(const std::array<double, 6>& m, const Pixels& from, Pixels* to) {
  const int channels = from.channels;
  for (int y = 0; y < to->height; ++y) {
    uint8_t* out = to->row(y);
    for (int x = 0; x < to->width; ++x, out += channels) {
      const double source_x = m[0] * (x + 0.5) + m[1] * (y + 0.5) + m[2];
      const double source_y = m[3] * (x + 0.5) + m[4] * (y + 0.5) + m[5];
      if (source_x < 0 || source_x >= from.width || source_y < 0 || source_y >= from.height) continue;
      const int left = static_cast<int>(std::floor(source_x - 0.5));
      const int top = static_cast<int>(std::floor(source_y - 0.5));
      const double right_part = source_x - 0.5 - left;
      const double lower_part = source_y - 0.5 - top;
      const int x0 = std::clamp(left, 0, from.width - 1) * channels;
      const int x1 = std::clamp(left + 1, 0, from.width - 1) * channels;
      const uint8_t* const upper = from.row(std::clamp(top, 0, from.height - 1));
      const uint8_t* const lower = from.row(std::clamp(top + 1, 0, from.height - 1));
      for (int c = 0; c < channels; ++c) {
        const double above = upper[x0 + c] + (upper[x1 + c] - upper[x0 + c]) * right_part;
        const double below = lower[x0 + c] + (lower[x1 + c] - lower[x0 + c]) * right_part;
        out[c] = static_cast<uint8_t>(above + (below - above) * lower_part);  // cut off, as Pillow does
      }
    }
  }
}

}  // namespace

void WarpPixels(const Warp& warp, const Fill& fill, Pixels* image, Pixels* scratch) {
  std::swap(*image, *scratch);
  image->Resize(scratch->width, scratch->height, scratch->channels);
  if (image->channels == 1) {
    std::fill(image->bytes.begin(), image->bytes.end(), fill[0]);
  } else {
    for (size_t i = 0; i < image->bytes.size(); i += 3) std::copy(fill.begin(), fill.end(), &image->bytes[i]);
  }
  if (warp.bilinear) {
    WarpBilinear(warp.inverse, *scratch, image);
  } else {
    WarpNearest(warp.inverse, *scratch, image);
  }
}

Warp ShearX(double by) {
  return {{1, by, 0, 0, 1, 0}};
}

Warp ShearY(double by) {
  return {{1, 0, 0, by, 1, 0}};
}

Warp Shift(double x, double y) {
  return {{1, 0, -x, 0, 1, -y}};
}

Warp Turn(double degrees, ImageSize size) {
  const SineAndCosine of = SineAndCosineOf(-degrees);
  const double x = size.width / 2.0;
  const double y = size.height / 2.0;
  return {{of.cosine, of.sine, x - of.cosine * x - of.sine * y, -of.sine, of.cosine, y + of.sine * x - of.cosine * y}};
}

Warp MirrorX(ImageSize size) {
  return {{-1, 0, static_cast<double>(size.width), 0, 1, 0}};
}

Warp MirrorY(ImageSize size) {
  return {{1, 0, 0, 0, -1, static_cast<double>(size.height)}};
}

Warp Scaled(const Warp& warp, ImageSize from, ImageSize to) {
  const double x = static_cast<double>(to.width) / from.width;
  const double y = static_cast<double>(to.height) / from.height;
  Warp scaled = warp;
  scaled.inverse[1] *= x / y;
  scaled.inverse[2] *= x;
  scaled.inverse[3] *= y / x;
  scaled.inverse[5] *= y;
  return scaled;
}

std::array<double, 4> WarpRectangle(const Warp& warp, const std::array<double, 4>& rectangle, ImageSize size) {
  const std::array<double, 6>& m = warp.inverse;
  const double determinant = m[0] * m[4] - m[1] * m[3];
  constexpr double kFar = std::numeric_limits<double>::infinity();
  std::array<double, 4> result = {kFar, kFar, -kFar, -kFar};
  for (const size_t x : {size_t{0}, size_t{2}}) {
    for (const size_t y : {size_t{1}, size_t{3}}) {
      const double right = rectangle[x] - m[2];
      const double down = rectangle[y] - m[5];
      const double to_x = (m[4] * right - m[1] * down) / determinant;
      const double to_y = (m[0] * down - m[3] * right) / determinant;
      result = {std::min(result[0], to_x), std::min(result[1], to_y), std::max(result[2], to_x),
                std::max(result[3], to_y)};
    }
  }
  for (const size_t x : {size_t{0}, size_t{2}}) result[x] = std::clamp<double>(result[x], 0, size.width);
  for (const size_t y : {size_t{1}, size_t{3}}) result[y] = std::clamp<double>(result[y], 0, size.height);
  return result;
}

}  // namespace millrace
