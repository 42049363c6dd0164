#include "decode/colour.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace millrace::colour {
namespace {

using Table = std::array<uint8_t, 256>;

uint8_t Clipped(int value) {
  return static_cast<uint8_t>(std::clamp(value, 0, 255));
}

// Blends between `from` (factor 0) and `to` (1), and beyond. The result is truncated, as in Pillow's blend.
uint8_t Blend(int from, int to, float factor) {
  const float value = static_cast<float>(from) + factor * static_cast<float>(to - from);
  if (value <= 0) return 0;
  return value >= 255 ? 255 : static_cast<uint8_t>(value);
}

uint8_t Luma(const uint8_t* rgb) {
  return static_cast<uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}

void Look(const Table& table, Pixels* image) {
  for (uint8_t& byte : image->bytes) byte = table[byte];
}

template <typename Function>
void LookAll(Pixels* image, Function&& function) {
  Table table;
  for (int value = 0; value < 256; ++value) table[static_cast<size_t>(value)] = function(value);
  Look(table, image);
}

using Histogram = std::array<int64_t, 256>;

// Uses a table for each channel, made of how often each value comes.
template <typename Function>
void LookByChannel(Pixels* image, Function&& function) {
  const auto channels = static_cast<size_t>(image->channels);
  for (size_t c = 0; c < channels; ++c) {
    Histogram histogram{};
    for (size_t i = c; i < image->bytes.size(); i += channels) ++histogram[image->bytes[i]];
    const Table table = function(histogram);
    for (size_t i = c; i < image->bytes.size(); i += channels) image->bytes[i] = table[image->bytes[i]];
  }
}

Table Unchanged() {
  Table table;
  for (size_t value = 0; value < 256; ++value) table[value] = static_cast<uint8_t>(value);
  return table;
}

struct Hsv {
  uint8_t hue = 0;
  uint8_t saturation = 0;
  uint8_t value = 0;
};

Hsv ToHsv(const uint8_t* rgb) {
  const uint8_t most = std::max({rgb[0], rgb[1], rgb[2]});
  const uint8_t least = std::min({rgb[0], rgb[1], rgb[2]});
  if (most == least) return {0, 0, most};
  const auto span = static_cast<float>(most - least);
  const float saturation = span / static_cast<float>(most);
  const auto below = [&](int c) { return static_cast<float>(most - rgb[c]) / span; };
  float hue = 0;
  if (rgb[0] == most) {
    hue = below(2) - below(1);
  } else if (rgb[1] == most) {
    hue = static_cast<float>(2.0 + static_cast<double>(below(0)) - static_cast<double>(below(2)));
  } else {
    hue = static_cast<float>(4.0 + static_cast<double>(below(1)) - static_cast<double>(below(0)));
  }
  hue = static_cast<float>(std::fmod(static_cast<double>(hue) / 6.0 + 1.0, 1.0));
  return {Clipped(static_cast<int>(static_cast<double>(hue) * 255.0)),
          Clipped(static_cast<int>(static_cast<double>(saturation) * 255.0)), most};
}

void FromHsv(const Hsv& hsv, uint8_t* rgb) {
  if (hsv.saturation == 0) {
    rgb[0] = rgb[1] = rgb[2] = hsv.value;
    return;
  }
  const auto hue = static_cast<double>(static_cast<float>(hsv.hue)) * 6.0 / 255.0;
  const int sector = static_cast<int>(std::floor(hue));
  const auto rest = static_cast<double>(static_cast<float>(hue - static_cast<double>(static_cast<float>(sector))));
  const auto saturation =
      static_cast<double>(static_cast<float>(static_cast<double>(static_cast<float>(hsv.saturation)) / 255.0));
  const auto value = static_cast<double>(static_cast<float>(hsv.value));
  const auto rounded = [](double number) { return Clipped(static_cast<int>(std::floor(number + 0.5))); };
  const uint8_t p = rounded(value * (1.0 - saturation));
  const uint8_t q = rounded(value * (1.0 - saturation * rest));
  const uint8_t t = rounded(value * (1.0 - saturation * (1.0 - rest)));
  const uint8_t v = hsv.value;
  const std::array<std::array<uint8_t, 3>, 6> sectors = {
      {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}}};
  const std::array<uint8_t, 3>& chosen = sectors[static_cast<size_t>(sector % 6)];
  std::copy(chosen.begin(), chosen.end(), rgb);
}

}  // namespace

void Brightness(Pixels* image, double factor) {
  LookAll(image, [factor = static_cast<float>(factor)](int value) { return Blend(0, value, factor); });
}

void Contrast(Pixels* image, double factor) {
  int64_t sum = 0;
  const auto step = static_cast<size_t>(image->channels);
  for (size_t i = 0; i < image->bytes.size(); i += step) {
    sum += step == 3 ? Luma(&image->bytes[i]) : image->bytes[i];
  }
  const double count = static_cast<double>(image->width) * image->height;
  const int mean = static_cast<int>(static_cast<double>(sum) / count + 0.5);
  LookAll(image, [mean, factor = static_cast<float>(factor)](int value) { return Blend(mean, value, factor); });
}

void Saturation(Pixels* image, double factor) {
  if (image->channels != 3) return;
  for (size_t i = 0; i < image->bytes.size(); i += 3) {
    uint8_t* const rgb = &image->bytes[i];
    const int luma = Luma(rgb);
    for (int c = 0; c < 3; ++c) rgb[c] = Blend(luma, rgb[c], static_cast<float>(factor));
  }
}

// The other end is the image after a filter of 3 x 3, which leaves the border as it is.
void Sharpness(Pixels* image, double factor) {
  if (image->width < 3 || image->height < 3) return;
  const std::vector<uint8_t> before = image->bytes;
  const size_t stride = image->row_bytes();
  const auto step = static_cast<size_t>(image->channels);
  constexpr float kSide = 1.0F / 13.0F;
  constexpr float kCentre = 5.0F / 13.0F;
  for (size_t y = 1; y + 1 < static_cast<size_t>(image->height); ++y) {
    for (size_t x = step; x + step < stride; ++x) {
      const uint8_t* const at = &before[y * stride + x];
      float sum = 0.5F;
      for (const uint8_t* line : {at + stride, at, at - stride}) {
        const float centre = line == at ? kCentre : kSide;
        sum += static_cast<float>(line[-static_cast<ptrdiff_t>(step)]) * kSide + static_cast<float>(line[0]) * centre +
               static_cast<float>(line[step]) * kSide;
      }
      const int smooth = Clipped(static_cast<int>(sum));
      image->bytes[y * stride + x] = Blend(smooth, *at, static_cast<float>(factor));
    }
  }
}

void Hue(Pixels* image, double turn) {
  if (image->channels != 3) return;
  const auto added = static_cast<uint8_t>(static_cast<int>(turn * 255) & 255);
  for (size_t i = 0; i < image->bytes.size(); i += 3) {
    Hsv hsv = ToHsv(&image->bytes[i]);
    hsv.hue = static_cast<uint8_t>(hsv.hue + added);
    FromHsv(hsv, &image->bytes[i]);
  }
}

void Grey(Pixels* image) {
  if (image->channels != 3) return;
  for (size_t i = 0; i < image->bytes.size(); i += 3) {
    uint8_t* const rgb = &image->bytes[i];
    rgb[0] = rgb[1] = rgb[2] = Luma(rgb);
  }
}

void Posterize(Pixels* image, int bits) {
  const int mask = 0xff << (8 - bits) & 0xff;
  LookAll(image, [mask](int value) { return static_cast<uint8_t>(value & mask); });
}

void Solarize(Pixels* image, double threshold) {
  LookAll(image, [threshold](int value) { return static_cast<uint8_t>(value < threshold ? value : 255 - value); });
}

void AutoContrast(Pixels* image) {
  LookByChannel(image, [](const Histogram& histogram) {
    const auto used = [](int64_t count) { return count > 0; };
    const auto low = std::find_if(histogram.begin(), histogram.end(), used) - histogram.begin();
    const auto high = histogram.rend() - std::find_if(histogram.rbegin(), histogram.rend(), used) - 1;
    Table table = Unchanged();
    if (high <= low) return table;
    const double scale = 255.0 / static_cast<double>(high - low);
    const double offset = static_cast<double>(-low) * scale;
    for (int value = 0; value < 256; ++value) {
      table[static_cast<size_t>(value)] = Clipped(static_cast<int>(value * scale + offset));
    }
    return table;
  });
}

void Equalize(Pixels* image) {
  LookByChannel(image, [](const Histogram& histogram) {
    Table table = Unchanged();
    int64_t sum = 0;
    int64_t last = 0;
    int used = 0;
    for (const int64_t count : histogram) {
      sum += count;
      if (count > 0) {
        last = count;
        ++used;
      }
    }
    const int64_t step = (sum - last) / 255;
    if (used <= 1 || step == 0) return table;
    int64_t running = step / 2;
    for (size_t value = 0; value < 256; ++value) {
      table[value] = static_cast<uint8_t>(std::min<int64_t>(running / step, 255));
      running += histogram[value];
    }
    return table;
  });
}

}  // namespace millrace::colour
