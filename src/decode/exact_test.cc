// Parts of images, decoded and resized in one go, against the whole image decoded by its codec, then cropped and
// resized.

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/testing/test_all.h"
#include "decode/geometry.h"
#include "decode/image.h"
#include "decode/jpeg_tiler.h"
#include "decode/resample.h"
#include "decode/testing/test_images.h"

namespace millrace {
namespace {

using testing::JpegKind;
using testing::MakeJpeg;

std::vector<uint8_t> WithoutFourth(const std::vector<uint8_t>& rgbx) {
  std::vector<uint8_t> rgb(rgbx.size() / 4 * 3);
  kernels::PackRgb(rgbx.data(), rgbx.size() / 4, rgb.data());
  return rgb;
}

/// Crops and resizes a whole image, shrunk to 1/part: RGBX, or grey.
std::vector<uint8_t> CropAndResize(std::vector<uint8_t> pixels, int width, const SourceCrop& crop,
                                   const ImageSpec& spec, int part) {
  const int bytes = spec.channels == 3 ? 4 : 1;
  pixels.resize(pixels.size() + kernels::kSlackBytes);
  ResizeAxis horizontal;
  ResizeAxis vertical;
  const auto up = [part](int position) { return (position + part - 1) / part; };
  horizontal.Build(crop.x / part, crop.width / part, crop.left / part, up(crop.right), spec.width, crop.flip,
                   spec.interpolation);
  vertical.Build(crop.y / part, crop.height / part, crop.top / part, up(crop.bottom), spec.height, false,
                 spec.interpolation);
  StreamResizer resizer;
  EXPECT_TRUE(resizer.Start(horizontal, vertical, bytes).ok());
  std::vector<uint8_t> out;
  for (int y = vertical.begin(); y < vertical.end(); ++y) {
    const size_t at = (static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(horizontal.begin())) *
                      static_cast<size_t>(bytes);
    resizer.Push(pixels.data() + at, [&](int, const uint8_t* row) {
      out.insert(out.end(), row, row + static_cast<size_t>(spec.width) * static_cast<size_t>(bytes));
    });
  }
  return spec.channels == 3 ? WithoutFourth(out) : out;
}

SourceCrop CropOf(ImageSize size, const ImageSpec& spec, uint64_t key) {
  return spec.augment ? RandomCrop(size, spec, key) : CenterCrop(size, spec);
}

absl::StatusOr<std::vector<uint8_t>> DecodePart(ImageDecoder& decoder, std::string_view encoded, const ImageSpec& spec,
                                                uint64_t key) {
  std::vector<uint8_t> out(spec.bytes());
  RETURN_IF_ERROR(decoder.Decode(AsBytes(encoded), spec, key, std::as_writable_bytes(std::span(out))));
  return out;
}

/// Pixels of a JPEG in colour that is reduced may be rounded, and cut off at 0 and 255, in another way.
void ExpectClose(const std::vector<uint8_t>& found, const std::vector<uint8_t>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  double total = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const int off = std::abs(found[i] - wanted[i]);
    ASSERT_LE(off, 8) << "at " << i;
    total += off;
  }
  EXPECT_LE(total / static_cast<double>(found.size()), 0.4);
}

TEST(PartTest, OfAJpegEqualsCroppingTheWhole) {
  std::array<int, 9> parts{};
  ImageDecoder decoder;
  for (const JpegKind kind : {JpegKind::kYcc420, JpegKind::kYcc422, JpegKind::kYcc444, JpegKind::kGrey}) {
    for (const bool progressive : {false, true}) {
      for (const auto& [width, height] :
           std::vector<std::pair<int, int>>{{320, 240}, {163, 211}, {497, 97}, {900, 800}}) {
        const std::string jpeg =
            MakeJpeg(width, height, {.kind = kind, .progressive = progressive, .restart_rows = width % 3});
        for (uint64_t key = 0; key < 24; ++key) {
          ImageSpec spec;
          spec.height = static_cast<int>(9 + key * 5);
          spec.width = static_cast<int>(20 + key * 3);
          spec.channels = key % 2 == 0 ? 3 : 1;
          spec.augment = key % 4 != 3;
          const SourceCrop crop = CropOf({width, height}, spec, key);
          const int part = ChooseDenominator(crop, spec);
          ImageSize size;
          const std::vector<uint8_t> whole = testing::DecodeWhole(jpeg, part, spec.channels, &size);
          const auto out = DecodePart(decoder, jpeg, spec, key);
          ASSERT_TRUE(out.ok()) << out.status();
          const std::vector<uint8_t> wanted = CropAndResize(whole, size.width, crop, spec, part);
          SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(kind) << " progressive " << progressive
                                            << " " << width << "x" << height << " key " << key << " part " << part);
          if (spec.channels == 3 && kind != JpegKind::kGrey) {
            ASSERT_NO_FATAL_FAILURE(ExpectClose(*out, wanted));
          } else {
            ASSERT_EQ(*out, wanted);
          }
          ++parts[static_cast<size_t>(part)];
        }
      }
    }
  }
  // The test is only worth its name if all scales took part.
  EXPECT_GT(parts[1], 50);
  EXPECT_GT(parts[2], 50);
  EXPECT_GT(parts[4], 20);
  EXPECT_GT(parts[8], 5);
}

/// Holds one image of the kind with this number, of all kinds.
struct AnyImage {
  std::string bytes;
  ImageSize size;
  std::vector<uint8_t> rgbx;  // of all of it
  std::vector<uint8_t> grey;
};

AnyImage MakeAny(uint64_t number) {
  Rng rng(HashKey(1, {number}));
  AnyImage image;
  image.size = {static_cast<int>(1 + rng.Below(300)), static_cast<int>(1 + rng.Below(300))};
  constexpr std::array<JpegKind, 7> kKinds = {JpegKind::kYcc420, JpegKind::kYcc422, JpegKind::kYcc440,
                                              JpegKind::kYcc411, JpegKind::kYcc444, JpegKind::kRgb,
                                              JpegKind::kGrey};
  constexpr std::array<testing::OtherFormat, 4> kOthers = {testing::OtherFormat::kWebp, testing::OtherFormat::kTiff,
                                                           testing::OtherFormat::kBmp, testing::OtherFormat::kGif};
  const uint64_t kind = rng.Below(kKinds.size() + 2 + kOthers.size());
  if (kind < kKinds.size()) {
    image.bytes = MakeJpeg(
        image.size.width, image.size.height,
        {.kind = kKinds[kind], .progressive = rng.Below(3) == 0, .restart_rows = static_cast<int>(rng.Below(3))});
    if (rng.Below(3) == 0) {
      absl::StatusOr<std::optional<std::string>> tiled = TileJpeg(AsBytes(image.bytes), uint64_t{64} << 20);
      if (tiled.ok() && *tiled) image.bytes = **std::move(tiled);
    }
    ImageSize size;
    image.rgbx = testing::DecodeWhole(image.bytes, 1, 3, &size);
    image.grey = testing::DecodeWhole(image.bytes, 1, 1, &size);
    return image;
  }
  const testing::Png png =
      kind < kKinds.size() + 2
          ? testing::MakePng(image.size.width, image.size.height,
                             {.color_type = rng.Below(2) == 0 ? 2 : 6, .interlaced = kind % 2 == 0})
          : testing::MakeOther(kOthers[kind - kKinds.size() - 2], image.size.width, image.size.height);
  image.bytes = png.bytes;
  for (size_t i = 0; i < png.rgb.size(); i += 3) {
    image.rgbx.insert(image.rgbx.end(), {png.rgb[i], png.rgb[i + 1], png.rgb[i + 2], 0});
    const int luma = png.rgb[i] * 19595 + png.rgb[i + 1] * 38470 + png.rgb[i + 2] * 7471 + 0x8000;
    image.grey.push_back(static_cast<uint8_t>(luma >> 16));
  }
  return image;
}

TEST(ExactTest, IsTheWholeImageCroppedAndResized) {
  const uint64_t count = TestAll() ? 10'000 : kSanitized ? 100 : 500;
  ImageDecoder decoder;
  uint64_t reduced = 0;
  for (uint64_t number = 0; number < count; ++number) {
    const AnyImage image = MakeAny(number);
    Rng rng(HashKey(2, {number}));
    ImageSpec spec;
    spec.exact = true;
    const uint64_t most = rng.Below(2) == 0 ? 20 : 120;
    spec.height = static_cast<int>(1 + rng.Below(most));
    spec.width = static_cast<int>(1 + rng.Below(most));
    spec.channels = rng.Below(4) == 0 ? 1 : 3;
    spec.augment = rng.Below(3) != 0;
    constexpr std::array<Interpolation, 4> kFilters = {Interpolation::kBilinear, Interpolation::kBilinear,
                                                       Interpolation::kBicubic, Interpolation::kBox};
    spec.interpolation = kFilters[rng.Below(kFilters.size())];
    const SourceCrop crop = CropOf(image.size, spec, number);
    if (ChooseDenominator(crop, spec) > 1) ++reduced;
    const std::vector<uint8_t>& whole = spec.channels == 3 ? image.rgbx : image.grey;
    const auto out = DecodePart(decoder, image.bytes, spec, number);
    ASSERT_TRUE(out.ok()) << out.status() << " number " << number;
    ASSERT_EQ(*out, CropAndResize(whole, image.size.width, crop, spec, 1)) << "number " << number;
  }
  EXPECT_GT(reduced, count / 20);  // else this is what happens without `exact`, too
}

}  // namespace
}  // namespace millrace
