#include "decode/resample.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
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

/// The definition: a triangle of radius max(1, scale) around the centre of each output, in double precision.
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
        // Overshoots at each edge of the noise, so that sums are cut off.
        results.push_back(
            Resize(image, c.width, channels, c.x, c.y, c.out_width, c.out_height, false, Interpolation::kBicubic));
        std::vector<uint8_t> floats(4 * image.size());
        kernels::ScaleBytes(image.data(), image.size(), 0.0171, -2.1, floats.data());
        results.push_back(floats);
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
