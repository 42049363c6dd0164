#include "decode/synth_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/rng.h"
#include "decode/jpeg_encoder.h"

namespace millrace {
namespace {

constexpr uint64_t kTextureDomain = 0x74657874;  // "text"
constexpr uint64_t kNoiseDomain = 0x6e6f6973;    // "nois"
constexpr uint64_t kSceneDomain = 0x7363656e;    // "scen"

constexpr int kSide = 512;  // of a texture
constexpr int kMask = kSide - 1;
constexpr int kTextureUnit = 64;  // one standard deviation
constexpr size_t kNoiseSize = size_t{1} << 16;
constexpr int kFraction = 8;  // bits of fraction of levels and colours

/// Adds noise on a lattice of `cells` x `cells`, interpolated bilinearly and tileable, to `sum`.
void AddOctave(Rng& rng, int cells, double amplitude, std::vector<double>* sum) {
  std::vector<double> lattice(static_cast<size_t>(cells) * cells);
  for (double& value : lattice) value = (rng.Unit() + rng.Unit() - 1) * amplitude;
  const int step = kSide / cells;
  for (int y = 0; y < kSide; ++y) {
    const double* const upper = &lattice[static_cast<size_t>(y / step) * cells];
    const double* const lower = &lattice[static_cast<size_t>((y / step + 1) % cells) * cells];
    const double v = static_cast<double>(y % step) / step;
    for (int x = 0; x < kSide; ++x) {
      const int left = x / step;
      const int right = (left + 1) % cells;
      const double u = static_cast<double>(x % step) / step;
      const double above = upper[left] + (upper[right] - upper[left]) * u;
      const double below = lower[left] + (lower[right] - lower[left]) * u;
      (*sum)[static_cast<size_t>(y) * kSide + x] += above + (below - above) * v;
    }
  }
}

/// Fractal noise: each octave has `persistence` of the amplitude of the one before; 0.5 is the spectrum of natural
/// scenes.
std::vector<int16_t> MakeTexture(uint64_t key, double persistence) {
  Rng rng(key);
  std::vector<double> sum(static_cast<size_t>(kSide) * kSide, 0.0);
  double amplitude = 1;
  for (int cells = 8; cells <= kSide; cells *= 2, amplitude *= persistence) AddOctave(rng, cells, amplitude, &sum);
  double mean = 0;
  for (const double value : sum) mean += value;
  mean /= static_cast<double>(sum.size());
  double variance = 0;
  for (const double value : sum) variance += (value - mean) * (value - mean);
  const double scale = kTextureUnit / std::sqrt(variance / static_cast<double>(sum.size()));
  std::vector<int16_t> texture(sum.size());
  for (size_t i = 0; i < sum.size(); ++i) texture[i] = static_cast<int16_t>(std::floor((sum[i] - mean) * scale + 0.5));
  return texture;
}

/// Returns a unit vector of random direction, without trigonometry (whose last digits differ between C libraries).
std::array<double, 2> Direction(Rng& rng) {
  for (;;) {
    const double x = 2 * rng.Unit() - 1;
    const double y = 2 * rng.Unit() - 1;
    const double square = x * x + y * y;
    if (square > 1 || square < 0.01) continue;
    const double length = std::sqrt(square);
    return {x / length, y / length};
  }
}

/// Describes the paint of an object of the scene.
struct Paint {
  const int16_t* texture = nullptr;
  int texture_x = 0;
  int texture_y = 0;
  int contrast = 0;             // of the texture
  std::array<int, 3> colour{};  // kFraction bits of fraction
  std::array<int, 3> tint{};    // how much the texture of the colour moves each channel
  double slope_x = 0;           // shading across the picture, levels a pixel
  double slope_y = 0;
};

/// This is a rotated ellipse or rectangle.
struct Shape {
  bool ellipse = true;
  double x = 0;
  double y = 0;
  std::array<double, 2> axis{};  // of the first radius
  double radius = 0;
  double other = 0;
};

Paint DrawPaint(Rng& rng, const std::array<std::vector<int16_t>, 3>& textures, int width) {
  Paint paint;
  paint.texture = textures[rng.Below(textures.size())].data();
  paint.texture_x = static_cast<int>(rng.Below(kSide));
  paint.texture_y = static_cast<int>(rng.Below(kSide));
  paint.contrast = 24 + static_cast<int>(rng.Below(96));
  const int level = 60 + static_cast<int>(rng.Below(130));
  for (int c = 0; c < 3; ++c) {
    paint.colour[c] = (level + static_cast<int>(rng.Below(81)) - 40) << kFraction;
    paint.tint[c] = static_cast<int>(rng.Below(41)) - 20;
  }
  const std::array<double, 2> light = Direction(rng);
  const double slope = 90 * rng.Unit() / width;
  paint.slope_x = light[0] * slope;
  paint.slope_y = light[1] * slope;
  return paint;
}

Shape DrawShape(Rng& rng, int width, int height) {
  Shape shape;
  shape.ellipse = rng.Below(2) == 0;
  shape.x = width * rng.Unit();
  shape.y = height * rng.Unit();
  shape.axis = Direction(rng);
  shape.radius = width * (0.02 + 0.2 * rng.Unit());
  shape.other = shape.radius * (0.3 + 0.7 * rng.Unit());
  return shape;
}

/// Finds the part of the row through `y` that is inside: [*begin, *end). Returns false when none is.
bool Span(const Shape& shape, double y, double* begin, double* end) {
  const double dy = y - shape.y;
  const double c = shape.axis[0];
  const double s = shape.axis[1];
  if (shape.ellipse) {
    // The border is ((dx c + dy s) / radius)^2 + ((dy c - dx s) / other)^2 = 1, a quadratic in dx.
    const double p = 1 / (shape.radius * shape.radius);
    const double q = 1 / (shape.other * shape.other);
    const double a = c * c * p + s * s * q;
    const double b = c * s * (p - q) * dy;
    const double d = (s * s * p + c * c * q) * dy * dy - 1;
    const double square = b * b - a * d;
    if (square <= 0) return false;
    const double root = std::sqrt(square);
    *begin = shape.x + (-b - root) / a;
    *end = shape.x + (-b + root) / a;
    return true;
  }
  // The inside is |dx c + dy s| <= radius and |dy c - dx s| <= other.
  double low = -1e9;
  double high = 1e9;
  const auto limit = [&](double slope, double offset, double reach) {
    if (std::abs(slope) < 1e-9) {
      if (std::abs(offset) > reach) high = low;
      return;
    }
    const double first = (-reach - offset) / slope;
    const double second = (reach - offset) / slope;
    low = std::max(low, std::min(first, second));
    high = std::min(high, std::max(first, second));
  };
  limit(c, dy * s, shape.radius);
  limit(-s, dy * c, shape.other);
  *begin = shape.x + low;
  *end = shape.x + high;
  return low < high;
}

uint8_t Clamp(int value) {
  return static_cast<uint8_t>(std::clamp(value, 0, 255));
}

/// Paints the pixels of [begin, end) in row `y`; a pixel that is covered in part is mixed with what was there.
void FillSpan(const Paint& paint, const int16_t* tint_texture, int y, double begin, double end, int width,
              uint8_t* row) {
  begin = std::clamp(begin, 0.0, static_cast<double>(width));
  end = std::clamp(end, 0.0, static_cast<double>(width));
  const int first = static_cast<int>(begin);
  const int last = std::min(static_cast<int>(std::ceil(end)), width);
  const int16_t* const fine = paint.texture + static_cast<size_t>((y + paint.texture_y) & kMask) * kSide;
  // Colour changes slowly: its texture is magnified eight times.
  const int16_t* const slow = tint_texture + static_cast<size_t>((y / 8 + paint.texture_x) & kMask) * kSide;
  const auto slope = static_cast<int>(std::floor(paint.slope_x * (1 << 16)));
  int shade = static_cast<int>(std::floor(paint.slope_y * y * (1 << 16))) + slope * first;
  for (int x = first; x < last; ++x, shade += slope) {
    const int level = (shade >> (16 - kFraction)) + fine[(x + paint.texture_x) & kMask] * paint.contrast;
    const int tint = slow[(x / 8 + paint.texture_y) & kMask];
    uint8_t* const pixel = row + 3 * x;
    const bool border = x == first || x + 1 == last;
    const double cover = border ? std::min(x + 1.0, end) - std::max<double>(x, begin) : 1;
    for (int c = 0; c < 3; ++c) {
      const uint8_t value = Clamp((level + paint.colour[c] + tint * paint.tint[c]) >> kFraction);
      pixel[c] = border ? static_cast<uint8_t>(pixel[c] + std::floor((value - pixel[c]) * cover + 0.5)) : value;
    }
  }
}

struct Size {
  int width;
  int height;
};

constexpr Size kSizes[] = {{640, 480}, {480, 360}, {320, 240}, {240, 180}, {160, 120}, {96, 72}, {64, 48}, {32, 24}};
constexpr int kCoarsest = 167;          // scale of the quantisation tables in percent: quality 30
constexpr double kTolerance = 0.10;     // of the size in bytes
constexpr double kGoodEnough = 0.07;    // ends the search
constexpr double kLeastDensity = 0.02;  // bytes a pixel: below it no picture has quality 30

double QualityOf(int scale) {
  return scale <= 100 ? 100 - scale / 2.0 : 5000.0 / scale;
}

enum class Verdict { kFound, kTooLarge, kTooSmall };

/// Searches the scale of the quantisation tables for a file of `bytes`. It returns kTooLarge or kTooSmall if the files
/// were.
absl::StatusOr<Verdict> FitSize(const std::vector<uint8_t>& rgb, Size size, uint64_t bytes, std::string* jpeg) {
  const auto target = static_cast<double>(bytes);
  int low = 1;
  int high = kCoarsest;
  int scale = 14;
  double best = kTolerance;
  Verdict verdict = Verdict::kTooSmall;
  while (low <= high) {
    ASSIGN_OR_RETURN(std::string encoded, EncodeJpeg(rgb, size.width, size.height, QualityOf(scale)));
    const double ratio = static_cast<double>(encoded.size()) / target;
    if (std::abs(ratio - 1) <= best) {
      best = std::abs(ratio - 1);
      *jpeg = std::move(encoded);
      verdict = Verdict::kFound;
      if (best <= kGoodEnough) break;
    } else if (verdict != Verdict::kFound) {
      verdict = ratio > 1 ? Verdict::kTooLarge : Verdict::kTooSmall;
    }
    if (ratio > 1) {
      low = scale + 1;
    } else {
      high = scale - 1;
    }
    // Files shrink about with the square root of the scale.
    scale = static_cast<int>(
        std::clamp(scale * ratio * ratio, static_cast<double>(low), static_cast<double>(std::max(low, high))));
  }
  return verdict;
}

}  // namespace

ImageSynth::ImageSynth(uint64_t seed) : seed_(seed) {
  constexpr std::array<double, kTextures> kPersistence{0.6, 0.75, 0.9};  // cloth, stone, grass
  for (int i = 0; i < kTextures; ++i) {
    textures_[i] = MakeTexture(HashKey(kTextureDomain, {seed, static_cast<uint64_t>(i)}), kPersistence[i]);
  }
  Rng rng(HashKey(kNoiseDomain, {seed}));
  noise_.resize(kNoiseSize);
  for (int8_t& value : noise_) value = static_cast<int8_t>(rng.Below(5) + rng.Below(5) + rng.Below(5)) - 6;
}

void ImageSynth::Render(uint64_t n, int width, int height, std::vector<uint8_t>* rgb) const {
  rgb->resize(size_t{3} * width * height);
  Rng rng(HashKey(kSceneDomain, {seed_, n}));
  const Paint background = DrawPaint(rng, textures_, width);
  const int16_t* const tint = textures_[0].data();
  for (int y = 0; y < height; ++y) FillSpan(background, tint, y, 0, width, width, rgb->data() + size_t{3} * width * y);
  const auto objects = static_cast<int>(6 + rng.Below(12));
  for (int i = 0; i < objects; ++i) {
    const Paint paint = DrawPaint(rng, textures_, width);
    const Shape shape = DrawShape(rng, width, height);
    for (int y = 0; y < height; ++y) {
      double begin = 0;
      double end = 0;
      if (!Span(shape, y + 0.5, &begin, &end) || end <= 0 || begin >= width) continue;
      FillSpan(paint, tint, y, begin, end, width, rgb->data() + size_t{3} * width * y);
    }
  }
  for (int y = 0; y < height; ++y) {
    uint8_t* const row = rgb->data() + size_t{3} * width * y;
    // This is a sensor's noise: mostly of the brightness, a third of it of each colour.
    const uint64_t at = rng.Next();
    for (int x = 0; x < width; ++x) {
      const int grey = noise_[(at + x) % kNoiseSize];
      for (int c = 0; c < 3; ++c) {
        row[3 * x + c] = Clamp(row[3 * x + c] + (grey * 2 + noise_[((at >> 16) + 3 * x + c) % kNoiseSize]) / 3);
      }
    }
  }
}

absl::StatusOr<std::string> SynthJpeg(const ImageSynth& synth, uint64_t n, uint64_t bytes) {
  std::vector<uint8_t> rgb;
  std::string jpeg;
  for (const Size size : kSizes) {
    const bool smallest = size.width == std::end(kSizes)[-1].width;
    if (!smallest && static_cast<double>(bytes) < kLeastDensity * size.width * size.height) continue;
    synth.Render(n, size.width, size.height, &rgb);
    ASSIGN_OR_RETURN(const Verdict verdict, FitSize(rgb, size, bytes, &jpeg));
    if (verdict == Verdict::kFound) return jpeg;
    if (verdict == Verdict::kTooSmall) break;
  }
  return absl::InvalidArgumentError(fmt::format(
      "cannot make a picture of 640 x 480 pixels or fewer that is {} bytes as a JPEG; choose a size from 1 to 150 KB",
      bytes));
}

}  // namespace millrace
