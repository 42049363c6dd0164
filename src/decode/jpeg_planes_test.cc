#include "decode/jpeg_planes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "decode/geometry.h"
#include "decode/image.h"
#include "decode/jpeg_tiler.h"
#include "decode/testing/jpeg_both_ways.h"
#include "decode/testing/test_images.h"

namespace millrace {
namespace {

using testing::JpegKind;
using testing::JpegOptions;
using testing::MakeJpeg;

constexpr JpegKind kYccKinds[] = {JpegKind::kYcc420, JpegKind::kYcc422, JpegKind::kYcc440, JpegKind::kYcc444};

absl::StatusOr<std::vector<uint8_t>> DecodeFast(std::string_view encoded, const ImageSpec& spec, uint64_t key) {
  ImageDecoder decoder;
  std::vector<uint8_t> out(spec.bytes());
  RETURN_IF_ERROR(decoder.Decode(AsBytes(encoded), spec, key, std::as_writable_bytes(std::span(out))));
  return out;
}

SourceCrop CropInPlanes(ImageSize size, const ImageSpec& spec, uint64_t key) {
  return spec.augment ? RandomCrop(size, spec, key) : CenterCrop(size, spec);
}

/// Returns the samples that libjpeg upsamples, resized by the axes and only then made RGB, in double precision.
std::vector<double> ResizedInDouble(const std::string& jpeg, ImageSize size, const SourceCrop& crop,
                                    const ImageSpec& spec, int part) {
  const testing::JpegPixels ycc = testing::ReadJpegPixels(AsBytes(jpeg), static_cast<unsigned>(part), nullptr);
  EXPECT_TRUE(ycc.ok) << ycc.status;
  const auto up = [part](int position) { return (position + part - 1) / part; };
  ResizeAxis horizontal;
  ResizeAxis vertical;
  horizontal.Build(crop.x / part, crop.width / part, crop.left / part, up(crop.right), spec.width, crop.flip);
  vertical.Build(crop.y / part, crop.height / part, crop.top / part, up(crop.bottom), spec.height, false);
  constexpr double kOne = 1 << kernels::kWeightBits;
  std::vector<double> rgb;
  for (int y = 0; y < spec.height; ++y) {
    for (int x = 0; x < spec.width; ++x) {
      std::array<double, 3> sum{};
      for (int j = 0; j < vertical.taps(); ++j) {
        for (int i = 0; i < horizontal.taps(); ++i) {
          const double weight = vertical.weights(y)[j] / kOne * horizontal.weights(x)[i] / kOne;
          const auto at = static_cast<size_t>((vertical.first(y) + j) * up(size.width) + horizontal.first(x) + i);
          for (size_t c = 0; c < 3; ++c) sum[c] += weight * ycc.bytes[3 * at + c];
        }
      }
      const double blue = sum[1] - 128;
      const double red = sum[2] - 128;
      rgb.push_back(std::clamp(sum[0] + 1.402 * red, 0.0, 255.0));
      rgb.push_back(std::clamp(sum[0] - 0.344136 * blue - 0.714136 * red, 0.0, 255.0));
      rgb.push_back(std::clamp(sum[0] + 1.772 * blue, 0.0, 255.0));
    }
  }
  return rgb;
}

// libjpeg rounds the chroma that it upsamples, which may count almost twice for blue.
TEST(JpegPlanesTest, ResizesWhatLibjpegUpsamples) {
  std::array<int, 9> parts{};
  for (const JpegKind kind : kYccKinds) {
    for (const bool noise : {false, true}) {
      for (const ImageSize size : {ImageSize{320, 240}, {163, 211}, {97, 301}, {450, 400}}) {
        const std::string jpeg = MakeJpeg(size.width, size.height, {.kind = kind, .quality = 85, .noise = noise});
        for (uint64_t key = 0; key < 12; ++key) {
          ImageSpec spec;
          spec.height = static_cast<int>(7 + key * 5);
          spec.width = static_cast<int>(11 + key * 4);
          spec.augment = key % 3 != 0;
          const SourceCrop crop = CropInPlanes(size, spec, key);
          if (crop.width * crop.height < 2.0 * spec.width * spec.height) continue;
          const int part = ChooseDenominator(crop, spec);
          const auto out = DecodeFast(jpeg, spec, key);
          ASSERT_TRUE(out.ok()) << out.status();
          const std::vector<double> wanted = ResizedInDouble(jpeg, size, crop, spec, part);
          double total = 0;
          for (size_t i = 0; i < wanted.size(); ++i) {
            const double off = std::abs((*out)[i] - wanted[i]);
            ASSERT_LT(off, 1.6) << static_cast<int>(kind) << ", key " << key << ", part " << part << ", at " << i;
            total += off;
          }
          EXPECT_LT(total / static_cast<double>(wanted.size()), 0.45);
          ++parts[static_cast<size_t>(part)];
        }
      }
    }
  }
  EXPECT_GT(parts[1], 50);
  EXPECT_GT(parts[2], 20);
  EXPECT_GT(parts[4], 10);
  EXPECT_GT(parts[8], 5);
}

// However the coefficients are stored, they make the same pixels.
TEST(JpegPlanesTest, PixelsDependOnTheCoefficientsAlone) {
  for (const JpegKind kind : kYccKinds) {
    for (const ImageSize size : {ImageSize{320, 240}, {163, 211}, {17, 300}, {401, 9}}) {
      const std::string baseline = MakeJpeg(size.width, size.height, {.kind = kind});
      const auto tiled = TileJpeg(AsBytes(baseline), uint64_t{64} << 20);
      ASSERT_TRUE(tiled.ok() && tiled->has_value()) << tiled.status();
      const std::vector<std::string> others = {**tiled,
                                               MakeJpeg(size.width, size.height, {.kind = kind, .progressive = true}),
                                               MakeJpeg(size.width, size.height, {.kind = kind, .arithmetic = true}),
                                               MakeJpeg(size.width, size.height, {.kind = kind, .restart_interval = 3}),
                                               MakeJpeg(size.width, size.height, {.kind = kind, .optimised = true})};
      for (uint64_t key = 0; key < 8; ++key) {
        ImageSpec spec;
        spec.height = static_cast<int>(3 + key * 8);
        spec.width = static_cast<int>(5 + key * 6);
        spec.augment = key % 4 != 0;
        const auto wanted = DecodeFast(baseline, spec, key);
        ASSERT_TRUE(wanted.ok()) << wanted.status();
        for (size_t i = 0; i < others.size(); ++i) {
          const auto found = DecodeFast(others[i], spec, key);
          ASSERT_TRUE(found.ok()) << found.status();
          ASSERT_TRUE(*wanted == *found) << static_cast<int>(kind) << ", " << size.width << " x " << size.height
                                         << ", key " << key << ", file " << i;
        }
      }
    }
  }
}

// An extreme reduction would hold many rows: it is left to the other way, which reads row by row.
TEST(JpegPlanesTest, MemoryIsBounded) {
  jpeg_decompress_struct jpeg{};
  const std::string encoded = MakeJpeg(3000, 400);
  JpegGuard guard;
  guard.Attach(reinterpret_cast<j_common_ptr>(&jpeg));
  ASSERT_TRUE(guard.Run([&] {
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(encoded.data()), encoded.size());
    jpeg_read_header(&jpeg, TRUE);
  }));
  JpegPlanes planes;
  ResizeAxis horizontal;
  ResizeAxis vertical;
  horizontal.Build(0, 3000, 0, 3000, 700, false);
  vertical.Build(0, 400, 0, 400, 100, false);
  bool fits = false;
  ASSERT_TRUE(guard.Run([&] { fits = planes.Aim(&jpeg, horizontal, vertical); }));
  EXPECT_TRUE(fits);
  vertical.Build(0, 400, 0, 400, 1, false);
  ASSERT_TRUE(guard.Run([&] { fits = planes.Aim(&jpeg, horizontal, vertical); }));
  EXPECT_FALSE(fits);
  jpeg_destroy_decompress(&jpeg);
}

}  // namespace
}  // namespace millrace
