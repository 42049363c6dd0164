#include "decode/synth_image.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "base/crypto.h"
#include "decode/image.h"
#include "decode/jpeg_encoder.h"

namespace millrace {
namespace {

uint64_t HashOf(const std::vector<uint8_t>& bytes) {
  return Xxh3(std::as_bytes(std::span(bytes)));
}

TEST(SynthImageTest, GoldenPictures) {
  const ImageSynth synth(1);
  std::vector<uint8_t> rgb;
  synth.Render(0, 640, 480, &rgb);
  EXPECT_EQ(rgb.size(), 640 * 480 * 3);
  EXPECT_EQ(HashOf(rgb), 14742220596051889210u);
  synth.Render(7, 64, 48, &rgb);
  EXPECT_EQ(HashOf(rgb), 9613571378546886626u);
}

TEST(SynthImageTest, PicturesDifferByNumberAndSeed) {
  std::vector<uint64_t> hashes;
  std::vector<uint8_t> rgb;
  for (const uint64_t seed : {1, 2}) {
    const ImageSynth synth(seed);
    for (uint64_t n = 0; n < 5; ++n) {
      synth.Render(n, 160, 120, &rgb);
      hashes.push_back(HashOf(rgb));
    }
  }
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::unique(hashes.begin(), hashes.end()), hashes.end());
}

TEST(SynthImageTest, OrderOfRenderingDoesNotMatter) {
  const ImageSynth one(3);
  const ImageSynth two(3);
  EXPECT_EQ(*SynthJpeg(one, 5, 20'000), *SynthJpeg(two, 5, 20'000));
  EXPECT_EQ(*SynthJpeg(one, 1, 20'000), *SynthJpeg(two, 1, 20'000));
  EXPECT_EQ(*SynthJpeg(one, 5, 20'000), *SynthJpeg(two, 5, 20'000));
}

/// Natural scenes lose energy with frequency: neighbours resemble each other far more than strangers, but are not
/// equal.
TEST(SynthImageTest, SpectrumFallsWithFrequency) {
  const ImageSynth synth(1);
  std::vector<uint8_t> rgb;
  double near = 0;
  double mid = 0;
  double far = 0;
  for (uint64_t n = 0; n < 8; ++n) {
    synth.Render(n, 320, 240, &rgb);
    const auto difference = [&](int distance) {
      double sum = 0;
      for (int y = 0; y < 240; ++y) {
        for (int x = 0; x + distance < 320; ++x) {
          const double d = rgb[(y * 320 + x) * 3 + 1] - rgb[(y * 320 + x + distance) * 3 + 1];
          sum += d * d;
        }
      }
      return sum / (240.0 * (320 - distance));
    };
    near += difference(1) / 8;
    mid += difference(8) / 8;
    far += difference(80) / 8;
  }
  EXPECT_GT(near, 10);
  EXPECT_GT(mid, 2 * near);
  EXPECT_GT(far, 1.5 * mid);
}

TEST(SynthJpegTest, SizesAreWithinTenPercent) {
  const ImageSynth synth(1);
  for (const uint64_t kb : {1, 2, 4, 9, 17, 40, 115, 150}) {
    for (uint64_t n = 0; n < 6; ++n) {
      const auto jpeg = SynthJpeg(synth, n, kb * 1000);
      ASSERT_TRUE(jpeg.ok()) << kb << ": " << jpeg.status();
      EXPECT_NEAR(static_cast<double>(jpeg->size()), kb * 1000.0, kb * 100.0);
      EXPECT_TRUE(jpeg->ends_with("\xff\xd9")) << "padding";
      const auto size = ReadImageSize(AsBytes(*jpeg));
      ASSERT_TRUE(size.ok());
      if (kb >= 20) {
        EXPECT_EQ(size->width, 640);
        EXPECT_EQ(size->height, 480);
      } else {
        EXPECT_LE(size->width, 640);
        EXPECT_EQ(size->width * 3, size->height * 4);
      }
      ImageDecoder decoder;
      ImageSpec spec;
      std::vector<std::byte> out(spec.bytes());
      EXPECT_TRUE(decoder.Decode(AsBytes(*jpeg), spec, 0, out).ok());
    }
  }
}

TEST(SynthJpegTest, BaselineWithSubsampledChroma) {
  const std::string jpeg = *SynthJpeg(ImageSynth(1), 0, 115'000);
  const size_t frame = jpeg.find("\xff\xc0");  // SOF0: baseline
  ASSERT_NE(frame, std::string::npos);
  EXPECT_EQ(jpeg[frame + 11], 0x22);  // luma 2 x 2
  EXPECT_EQ(jpeg[frame + 14], 0x11);
  EXPECT_EQ(jpeg[frame + 17], 0x11);
}

TEST(SynthJpegTest, ImpossibleSizesAreRefused) {
  const ImageSynth synth(1);
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{100}, uint64_t{2'000'000}}) {
    const auto jpeg = SynthJpeg(synth, 0, bytes);
    EXPECT_EQ(jpeg.status().code(), absl::StatusCode::kInvalidArgument) << bytes;
  }
}

TEST(EncodeJpegTest, QualityDecidesTheSize) {
  std::vector<uint8_t> rgb;
  ImageSynth(1).Render(0, 160, 120, &rgb);
  size_t before = 0;
  for (const double quality : {5.0, 30.0, 60.0, 90.0, 90.5, 99.0}) {
    const auto jpeg = EncodeJpeg(rgb, 160, 120, quality);
    ASSERT_TRUE(jpeg.ok());
    EXPECT_GT(jpeg->size(), before) << quality;
    before = jpeg->size();
  }
}

TEST(EncodeJpegTest, RefusesWhatDoesNotFit) {
  const std::vector<uint8_t> rgb(12);
  EXPECT_TRUE(EncodeJpeg(rgb, 2, 2, 90).ok());
  EXPECT_EQ(EncodeJpeg(rgb, 2, 3, 90).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(EncodeJpeg(rgb, 0, 0, 90).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(EncodeJpeg(rgb, -2, -2, 90).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(EncodeJpeg(rgb, 2, 2, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(EncodeJpeg(rgb, 2, 2, 101).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
