#include "decode/resample.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>

#include "base/rng.h"

namespace millrace {
namespace {

struct Part {
  double from;
  double size;
  int low;
  int high;
};

std::vector<uint8_t> Noise(size_t size, uint64_t key) {
  Rng rng(key);
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Next());
  return bytes;
}

/// Resizes `image` (width x height pixels of `channels` bytes) through the code under test.
std::vector<uint8_t> Resize(const std::vector<uint8_t>& image, int width, int channels, Part x, Part y, int out_width,
                            int out_height, bool flip = false, Interpolation filter = Interpolation::kBilinear) {
  std::vector<uint8_t> padded = image;
  padded.resize(padded.size() + kernels::kSlackBytes);
  ResizeAxis horizontal;
  ResizeAxis vertical;
  horizontal.Build(x.from, x.size, x.low, x.high, out_width, flip, filter);
  vertical.Build(y.from, y.size, y.low, y.high, out_height, false, filter);
  StreamResizer resizer;
  EXPECT_TRUE(resizer.Start(horizontal, vertical, channels).ok());
  std::vector<uint8_t> out(static_cast<size_t>(out_width) * out_height * channels);
  int expected = 0;
  for (int row = vertical.begin(); row < vertical.end(); ++row) {
    resizer.Push(padded.data() + (static_cast<size_t>(row) * width + horizontal.begin()) * channels,
                 [&](int at, const uint8_t* pixels) {
                   EXPECT_EQ(at, expected++);
                   std::memcpy(out.data() + static_cast<size_t>(at) * out_width * channels, pixels,
                               static_cast<size_t>(out_width) * channels);
                 });
  }
  EXPECT_TRUE(resizer.done());
  EXPECT_EQ(expected, out_height);
  return out;
}

/// Computes the definition: a triangle of radius max(1, scale) around the centre of each output, in double precision.
double Reference(const std::function<double(int, int)>& pixel, Part x, Part y, int out_width, int out_height, int at_x,
                 int at_y) {
  const double scale_x = x.size / out_width;
  const double scale_y = y.size / out_height;
  const double center_x = x.from + (at_x + 0.5) * scale_x;
  const double center_y = y.from + (at_y + 0.5) * scale_y;
  const double reach_x = std::max(scale_x, 1.0);
  const double reach_y = std::max(scale_y, 1.0);
  double sum = 0;
  double total = 0;
  for (int sy = y.low; sy < y.high; ++sy) {
    const double wy = 1 - std::abs(sy + 0.5 - center_y) / reach_y;
    if (wy <= 0) continue;
    for (int sx = x.low; sx < x.high; ++sx) {
      const double wx = 1 - std::abs(sx + 0.5 - center_x) / reach_x;
      if (wx <= 0) continue;
      sum += wx * wy * pixel(sx, sy);
      total += wx * wy;
    }
  }
  return sum / total;
}

struct Case {
  int width;
  int height;
  Part x;
  Part y;
  int out_width;
  int out_height;
};

const Case kCases[] = {
    {320, 240, {40, 240, 0, 320}, {0, 240, 0, 240}, 224, 224},
    {61, 47, {3.3, 50.7, 0, 61}, {1.9, 40.2, 0, 47}, 17, 13},  // reduction with fractions
    {20, 20, {5, 10, 5, 15}, {4, 12, 4, 16}, 37, 41},          // enlarged, fenced in
    {20, 20, {5, 10, 0, 20}, {4, 12, 0, 20}, 37, 41},          // enlarged, with surroundings
    {200, 3, {0, 200, 0, 200}, {0, 3, 0, 3}, 1, 1},            // all of it into one pixel
    {1, 1, {0, 1, 0, 1}, {0, 1, 0, 1}, 5, 7},
    {33, 1, {0, 33, 0, 33}, {0, 1, 0, 1}, 32, 2},
    {300, 9, {0, 300, 0, 300}, {0, 9, 0, 9}, 7, 90},  // shrunk one way, enlarged the other
};

TEST(ResampleTest, AgreesWithTheDefinition) {
  for (const Case& c : kCases) {
    for (const int channels : {4, 1}) {
      const std::vector<uint8_t> image =
          Noise(static_cast<size_t>(c.width) * c.height * channels, c.width * 100 + channels);
      const std::vector<uint8_t> out = Resize(image, c.width, channels, c.x, c.y, c.out_width, c.out_height);
      double worst = 0;
      for (int y = 0; y < c.out_height; y += 3) {
        for (int x = 0; x < c.out_width; x += 2) {
          for (int channel = 0; channel < channels; ++channel) {
            const double exact = Reference(
                [&](int sx, int sy) { return image[(static_cast<size_t>(sy) * c.width + sx) * channels + channel]; },
                c.x, c.y, c.out_width, c.out_height, x, y);
            const double got = out[(static_cast<size_t>(y) * c.out_width + x) * channels + channel];
            worst = std::max(worst, std::abs(got - exact));
          }
        }
      }
      EXPECT_LE(worst, 0.6) << c.width << "x" << c.height << " -> " << c.out_width << "x" << c.out_height << ", "
                            << channels;
      EXPECT_GT(worst, 0.0) << "a test that compares nothing";
      if (c.width == 1) break;
    }
  }
}

TEST(ResampleTest, ScaleOneIsExact) {
  for (const int channels : {4, 1}) {
    const std::vector<uint8_t> image = Noise(static_cast<size_t>(31) * 29 * channels, channels);
    EXPECT_EQ(Resize(image, 31, channels, {0, 31, 0, 31}, {0, 29, 0, 29}, 31, 29), image);
  }
}

TEST(ResampleTest, ScaleOneCopiesAnInnerPart) {
  const std::vector<uint8_t> image = Noise(40 * 30, 5);
  const std::vector<uint8_t> out = Resize(image, 40, 1, {7, 16, 0, 40}, {3, 20, 0, 30}, 16, 20);
  for (int y = 0; y < 20; ++y) {
    for (int x = 0; x < 16; ++x) ASSERT_EQ(out[y * 16 + x], image[(y + 3) * 40 + x + 7]);
  }
}

TEST(ResampleTest, EvenColourStaysExactWhateverTheScale) {
  for (const int value : {0, 1, 127, 254, 255}) {
    for (const int size : {1, 2, 3, 7, 50, 333}) {
      const std::vector<uint8_t> image(static_cast<size_t>(100) * 100, static_cast<uint8_t>(value));
      const std::vector<uint8_t> out = Resize(image, 100, 1, {0.25, 99.5, 0, 100}, {0.1, 99.7, 0, 100}, size, size);
      EXPECT_EQ(out, std::vector<uint8_t>(static_cast<size_t>(size) * size, static_cast<uint8_t>(value)));
    }
  }
}

TEST(ResampleTest, FencesKeepTheSurroundingsOut) {
  std::vector<uint8_t> image(static_cast<size_t>(30) * 30, 255);
  for (int y = 10; y < 20; ++y) std::fill_n(image.begin() + y * 30 + 10, 10, uint8_t{40});
  const std::vector<uint8_t> fenced = Resize(image, 30, 1, {10, 10, 10, 20}, {10, 10, 10, 20}, 4, 4);
  EXPECT_EQ(fenced, std::vector<uint8_t>(16, 40));
  const std::vector<uint8_t> open = Resize(image, 30, 1, {10, 10, 0, 30}, {10, 10, 0, 30}, 4, 4);
  EXPECT_GT(open[0], 40);
}

TEST(ResampleTest, ReverseMirrors) {
  const std::vector<uint8_t> image = Noise(50 * 20 * 4, 8);
  const std::vector<uint8_t> plain = Resize(image, 50, 4, {2, 45, 2, 47}, {0, 20, 0, 20}, 23, 11);
  const std::vector<uint8_t> mirrored = Resize(image, 50, 4, {2, 45, 2, 47}, {0, 20, 0, 20}, 23, 11, true);
  for (int y = 0; y < 11; ++y) {
    for (int x = 0; x < 23; ++x) {
      for (int c = 0; c < 4; ++c) ASSERT_EQ(mirrored[(y * 23 + x) * 4 + c], plain[(y * 23 + 22 - x) * 4 + c]);
    }
  }
}

TEST(ResampleTest, WeightsSumToOneHoweverMany) {
  for (const int size : {1, 2, 3, 10, 1000, 65500}) {
    for (const int outputs : {1, 3, 224}) {
      ResizeAxis axis;
      axis.Build(0, size, 0, size, outputs, false);
      EXPECT_GE(axis.begin(), 0);
      EXPECT_LE(axis.end(), size);
      for (int i = 0; i < outputs; ++i) {
        int sum = 0;
        for (int k = 0; k < axis.taps(); ++k) sum += axis.weights(i)[k];
        ASSERT_EQ(sum, 1 << kernels::kWeightBits) << size << " " << outputs << " " << i;
        ASSERT_LE(axis.first(i) + axis.taps(), axis.end());
      }
    }
  }
}

// Samples are doubled as libjpeg does it, and then resized: both in double precision.
TEST(ResampleTest, HalvedAxesDoubleAndResize) {
  struct Halved {
    int pixels;
    double from;
    double size;
    int low;
    int high;
    int outputs;
    bool reverse;
  };
  constexpr double kOne = 1 << kernels::kWeightBits;
  for (const Halved& c : {Halved{64, 0, 64, 0, 64, 32, false}, Halved{63, 7, 51, 7, 58, 20, true},
                          Halved{480, 31.5, 400.25, 0, 480, 224, false}, Halved{9, 2, 5, 2, 7, 17, false},
                          Halved{7, 0, 7, 0, 7, 7, false}, Halved{1000, 0, 1000, 0, 1000, 3, true}}) {
    const int samples = (c.pixels + 1) / 2;
    ResizeAxis whole;
    whole.Build(c.from, c.size, c.low, c.high, c.outputs, c.reverse);
    ResizeAxis halved;
    halved.BuildHalved(whole, samples);
    ASSERT_EQ(halved.outputs(), c.outputs);
    EXPECT_GE(halved.begin(), std::max(0, whole.begin() / 2 - 1));
    EXPECT_LE(halved.end(), std::min(samples, (whole.end() + 1) / 2 + 1));
    for (int i = 0; i < c.outputs; ++i) {
      std::vector<double> wanted(static_cast<size_t>(samples));
      for (int k = 0; k < whole.taps(); ++k) {
        const int pixel = whole.first(i) + k;
        const int other = std::clamp(pixel % 2 == 0 ? pixel / 2 - 1 : pixel / 2 + 1, 0, samples - 1);
        wanted[static_cast<size_t>(pixel / 2)] += 0.75 * whole.weights(i)[k];
        wanted[static_cast<size_t>(other)] += 0.25 * whole.weights(i)[k];
      }
      int sum = 0;
      ASSERT_GE(halved.first(i), halved.begin());
      ASSERT_LE(halved.first(i) + halved.taps(), halved.end());
      for (int k = 0; k < halved.taps(); ++k) {
        double& at = wanted[static_cast<size_t>(halved.first(i) + k)];
        ASSERT_NEAR(halved.weights(i)[k], at, 1.01);
        at = 0;
        sum += halved.weights(i)[k];
      }
      ASSERT_EQ(sum, static_cast<int>(kOne));
      // Nothing of a weight is outside.
      ASSERT_EQ(*std::max_element(wanted.begin(), wanted.end()), 0);
    }
  }
}

TEST(ResampleTest, NumbersAreResizedByTheDefinition) {
  for (const int size : {5, 64, 480, 999}) {
    for (const int outputs : {1, 2, 3, 4, 5, 63, 224}) {
      ResizeAxis axis;
      axis.Build(0.5, size - 1.0, 0, size, outputs, outputs % 2 == 0);
      const auto count = static_cast<size_t>(axis.end() - axis.begin());
      const std::vector<uint8_t> upper = Noise(count + kernels::kSlackBytes, static_cast<uint64_t>(size));
      const std::vector<uint8_t> lower = Noise(count + kernels::kSlackBytes, static_cast<uint64_t>(outputs));
      const uint8_t* const rows[] = {upper.data(), lower.data()};
      const int16_t weights[] = {16384 - 5000, 5000};
      std::vector<int16_t> blended(count + kernels::kSlackBytes);
      kernels::BlendByteRows(rows, weights, 2, count, blended.data());
      for (size_t i = 0; i < count; ++i) {
        const int sum = weights[0] * upper[i] + weights[1] * lower[i];
        ASSERT_EQ(blended[i], (sum + 64) >> 7) << i;
      }
      std::vector<int16_t> out(static_cast<size_t>(outputs) + kernels::kSlackBytes);
      kernels::ResizeRowNumbers(blended.data(), axis.view(), out.data());
      for (int i = 0; i < outputs; ++i) {
        int64_t sum = 1 << 13;
        for (int k = 0; k < axis.taps(); ++k) {
          sum += int64_t{axis.weights(i)[k]} * blended[static_cast<size_t>(axis.first(i) - axis.begin() + k)];
        }
        ASSERT_EQ(out[static_cast<size_t>(i)], sum >> 14) << size << " " << outputs << " " << i;
      }
    }
  }
}

TEST(ResampleTest, ColoursAreThoseOfJpeg) {
  constexpr int kUnit = 1 << kernels::kRowBits;
  Rng rng(3);
  const size_t pixels = 4'003;
  std::array<std::vector<int16_t>, 3> ycc;
  for (auto& plane : ycc) {
    for (size_t i = 0; i < pixels + kernels::kSlackBytes; ++i) {
      plane.push_back(static_cast<int16_t>(i % 3 == 0 ? 255 * kUnit * rng.Below(2) : rng.Below(255 * kUnit + 1)));
    }
  }
  std::vector<uint8_t> rgbx(4 * pixels + kernels::kSlackBytes);
  kernels::RgbxFromYcc(ycc[0].data(), ycc[1].data(), ycc[2].data(), pixels, rgbx.data());
  for (size_t i = 0; i < pixels; ++i) {
    const double y = double{1} * ycc[0][i] / kUnit;
    const double blue = double{1} * ycc[1][i] / kUnit - 128;
    const double red = double{1} * ycc[2][i] / kUnit - 128;
    const double wanted[] = {y + 1.402 * red, y - 0.344136 * blue - 0.714136 * red, y + 1.772 * blue};
    for (size_t c = 0; c < 3; ++c) {
      ASSERT_NEAR(rgbx[4 * i + c], std::clamp(wanted[c], 0.0, 255.0), 0.52) << i << ", colour " << c;
    }
  }
}

TEST(ResampleTest, RefusesWhatWouldNeedManyRows) {
  ResizeAxis horizontal;
  ResizeAxis vertical;
  horizontal.Build(0, 16384, 0, 16384, 16384, false);
  vertical.Build(0, 65500, 0, 65500, 1, false);
  StreamResizer resizer;
  const absl::Status status = resizer.Start(horizontal, vertical, 4);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(ToStd(status.message()).find("65500 rows"), std::string_view::npos) << status;
}

TEST(ResampleTest, PackAndSplitDropTheFourthByte) {
  for (const size_t pixels :
       {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{63}, size_t{64}, size_t{65}, size_t{224}}) {
    const std::vector<uint8_t> rgbx = Noise(4 * pixels, pixels);
    std::vector<uint8_t> rgb(3 * pixels + 1, 7);
    kernels::PackRgb(rgbx.data(), pixels, rgb.data());
    std::vector<uint8_t> planes(3 * pixels + 1, 7);
    kernels::SplitRgb(rgbx.data(), pixels, planes.data(), planes.data() + pixels, planes.data() + 2 * pixels);
    for (size_t i = 0; i < pixels; ++i) {
      for (size_t c = 0; c < 3; ++c) {
        ASSERT_EQ(rgb[3 * i + c], rgbx[4 * i + c]);
        ASSERT_EQ(planes[c * pixels + i], rgbx[4 * i + c]);
      }
    }
    EXPECT_EQ(rgb.back(), 7) << "wrote beyond the end";
    EXPECT_EQ(planes.back(), 7);
  }
}

TEST(ResampleTest, ScalesBytesByTheDefinition) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{224}, size_t{256}}) {
    const std::vector<uint8_t> bytes = Noise(count, count);
    std::vector<uint8_t> out(4 * count + 1, 7);
    kernels::ScaleBytes(bytes.data(), count, 0.0171, -2.1, out.data());
    for (size_t i = 0; i < count; ++i) {
      float scaled;
      std::memcpy(&scaled, &out[4 * i], sizeof(scaled));
      const double product = bytes[i] * 0.0171;
      ASSERT_EQ(scaled, static_cast<float>(product - 2.1));
    }
    EXPECT_EQ(out.back(), 7) << "wrote beyond the end";
  }
}

/// Blends a row with itself backwards, resizes it and takes the result for colours.
std::vector<uint8_t> ThroughNumbers(const std::vector<uint8_t>& row, Part part, int outputs) {
  ResizeAxis axis;
  axis.Build(part.from, part.size, part.low, part.high, outputs, false);
  std::vector<uint8_t> upper = row;
  std::vector<uint8_t> lower(row.rbegin(), row.rend());
  const size_t count = std::max(row.size(), static_cast<size_t>(axis.end()));
  upper.resize(count + kernels::kSlackBytes);
  lower.resize(count + kernels::kSlackBytes);
  const uint8_t* const rows[] = {upper.data(), lower.data(), lower.data(), upper.data()};
  const int16_t weights[] = {4000, 8001, 2384, 1999};
  std::vector<int16_t> blended(count + kernels::kSlackBytes);
  kernels::BlendByteRows(rows, weights, 4, count, blended.data());
  std::vector<int16_t> resized(static_cast<size_t>(outputs) + kernels::kSlackBytes);
  kernels::ResizeRowNumbers(blended.data(), axis.view(), resized.data());
  std::vector<uint8_t> rgbx(4 * static_cast<size_t>(outputs) + kernels::kSlackBytes);
  kernels::RgbxFromYcc(resized.data(), blended.data(), resized.data(), std::min(count, static_cast<size_t>(outputs)),
                       rgbx.data());
  rgbx.resize(4 * std::min(count, static_cast<size_t>(outputs)));
  return rgbx;
}

/// Puts the choice of the instruction set back.
struct TargetGuard {
  ~TargetGuard() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
};

TEST(ResampleTest, EveryInstructionSetGivesTheSameBytes) {
  const TargetGuard guard;
  const int64_t all = hwy::SupportedTargets();
  std::vector<std::vector<uint8_t>> first;
  int sets = 0;
  for (int bit = 0; bit < 63; ++bit) {
    const int64_t target = int64_t{1} << bit;
    if ((all & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    std::vector<std::vector<uint8_t>> results;
    for (const Case& c : kCases) {
      for (const int channels : {4, 1}) {
        const std::vector<uint8_t> image = Noise(static_cast<size_t>(c.width) * c.height * channels, 99);
        results.push_back(Resize(image, c.width, channels, c.x, c.y, c.out_width, c.out_height));
        std::vector<uint8_t> rgb(results.back().size() * 3);
        kernels::PackRgb(results.back().data(), results.back().size() / 4, rgb.data());
        results.push_back(rgb);
        // The filter overshoots at each edge of the noise, so that sums are cut off.
        results.push_back(
            Resize(image, c.width, channels, c.x, c.y, c.out_width, c.out_height, false, Interpolation::kBicubic));
        std::vector<uint8_t> floats(4 * image.size());
        kernels::ScaleBytes(image.data(), image.size(), 0.0171, -2.1, floats.data());
        results.push_back(floats);
        results.push_back(ThroughNumbers(image, c.x, c.out_width));
      }
    }
    if (sets++ == 0) {
      first = results;
    } else {
      EXPECT_EQ(results, first) << hwy::TargetName(target);
    }
  }
  EXPECT_GE(sets, 1);
  RecordProperty("instruction_sets", sets);
}

}  // namespace
}  // namespace millrace
