#include "decode/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

#include "base/waiting_budget.h"
#include "decode/decode_memory.h"
#include "decode/geometry.h"
#include "decode/resample.h"
#include "decode/row_reader.h"
#include "decode/testing/test_images.h"

namespace millrace {
namespace {

using testing::DecodeWhole;
using ::testing::HasSubstr;
using testing::JpegKind;
using testing::JpegOptions;
using testing::MakeJpeg;
using testing::MakePng;
using testing::MakeRgb;

ImageSpec Spec(int height, int width, int channels = 3) {
  ImageSpec spec;
  spec.height = height;
  spec.width = width;
  spec.channels = channels;
  return spec;
}

absl::StatusOr<std::vector<uint8_t>> Decode(std::string_view encoded, const ImageSpec& spec, uint64_t key = 0) {
  ImageDecoder decoder;
  std::vector<uint8_t> out(spec.bytes());
  RETURN_IF_ERROR(decoder.Decode(AsBytes(encoded), spec, key, std::as_writable_bytes(std::span(out))));
  return out;
}

void ExpectError(std::string_view encoded, absl::StatusCode code, std::string_view message,
                 const ImageSpec& spec = Spec(8, 8)) {
  const auto out = Decode(encoded, spec);
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.status().code(), code) << out.status();
  EXPECT_THAT(std::string(ToStd(out.status().message())), HasSubstr(std::string(message)));
}

/// Returns the pixels without their fourth bytes.
std::vector<uint8_t> Packed(const std::vector<uint8_t>& rgbx) {
  std::vector<uint8_t> rgb(rgbx.size() / 4 * 3);
  kernels::PackRgb(rgbx.data(), rgbx.size() / 4, rgb.data());
  return rgb;
}

// Palette entry k of these files is (k, ...).
TEST(NumbersTest, AreIndicesOrSamplesAsTheyAreStored) {
  for (const int type : {0, 3}) {
    for (const int depth : {1, 2, 4, 8}) {
      for (const bool interlaced : {false, true}) {
        const testing::Png png = MakePng(29, 13, {.color_type = type, .depth = depth, .interlaced = interlaced});
        ImageSpec spec = Spec(13, 29, 1);
        spec.interpolation = Interpolation::kNearest;
        spec.numbers = true;
        const absl::StatusOr<std::vector<uint8_t>> numbers = Decode(png.bytes, spec);
        ASSERT_TRUE(numbers.ok()) << numbers.status();
        const int levels = depth == 8 ? 256 : 1 << depth;
        for (size_t i = 0; i < numbers->size(); ++i) {
          const int shown = png.rgb[3 * i];
          ASSERT_EQ((*numbers)[i], type == 3 ? shown : shown * (levels - 1) / 255) << depth << " " << i;
        }
      }
    }
  }
}

TEST(NumbersTest, ColoursAndWideNumbersAreRefused) {
  ImageSpec spec = Spec(8, 8, 1);
  spec.interpolation = Interpolation::kNearest;
  spec.numbers = true;
  ExpectError(MakePng(8, 8, {.color_type = 2}).bytes, absl::StatusCode::kInvalidArgument, "holds colours", spec);
  ExpectError(MakePng(8, 8, {.color_type = 0, .depth = 16}).bytes, absl::StatusCode::kInvalidArgument, "16-bit", spec);
  ExpectError(MakeJpeg(8, 8), absl::StatusCode::kInvalidArgument, "holds colours", spec);
  EXPECT_TRUE(Decode(MakeJpeg(8, 8, {.kind = JpegKind::kGrey}), spec).ok());
  spec.interpolation = Interpolation::kBilinear;
  ExpectError(MakeJpeg(8, 8), absl::StatusCode::kInvalidArgument, "nearest", spec);
}

// Each pixel of the output is that of the source which NearestPixels names.
TEST(NearestTest, PicksPixelsOfTheWholeImage) {
  const std::string jpeg = MakeJpeg(61, 47);
  const std::vector<uint8_t> whole = *Decode(jpeg, Spec(47, 61));
  ImageSpec spec = Spec(20, 33);
  spec.interpolation = Interpolation::kNearest;
  spec.augment = true;
  ImageDecoder decoder;
  for (uint64_t key = 0; key < 20; ++key) {
    std::vector<uint8_t> out(spec.bytes());
    ASSERT_TRUE(decoder.Decode(AsBytes(jpeg), spec, key, std::as_writable_bytes(std::span(out))).ok());
    const SourceCrop crop = RandomCrop({61, 47}, spec, key);
    EXPECT_EQ(decoder.frame().crop.x, crop.x);
    std::vector<int> columns;
    std::vector<int> lines;
    NearestPixels(crop.x, crop.width, crop.left, crop.right, 33, crop.flip, &columns);
    NearestPixels(crop.y, crop.height, crop.top, crop.bottom, 20, false, &lines);
    for (size_t y = 0; y < lines.size(); ++y) {
      for (size_t x = 0; x < columns.size(); ++x) {
        const size_t from = 3 * (static_cast<size_t>(lines[y]) * 61 + static_cast<size_t>(columns[x]));
        ASSERT_EQ(std::memcmp(&out[3 * (y * 33 + x)], &whole[from], 3), 0) << key;
      }
    }
  }
}

TEST(JpegTest, FullSizeEqualsPlainLibjpegToTheBit) {
  for (const JpegKind kind :
       {JpegKind::kYcc420, JpegKind::kYcc422, JpegKind::kYcc444, JpegKind::kRgb, JpegKind::kGrey}) {
    for (const bool progressive : {false, true}) {
      for (const auto& [width, height] :
           std::vector<std::pair<int, int>>{{1, 1}, {7, 5}, {16, 16}, {33, 50}, {64, 48}, {101, 67}}) {
        const std::string jpeg = MakeJpeg(width, height, {.kind = kind, .progressive = progressive});
        for (const int channels : {3, 1}) {
          ImageSize size;
          const std::vector<uint8_t> whole = DecodeWhole(jpeg, 1, channels, &size);
          const auto out = Decode(jpeg, Spec(height, width, channels));
          ASSERT_TRUE(out.ok()) << out.status();
          EXPECT_EQ(*out, channels == 3 ? Packed(whole) : whole)
              << static_cast<int>(kind) << " " << width << "x" << height;
        }
      }
    }
  }
}

TEST(JpegTest, CmykAndYcckBecomeRgb) {
  for (const JpegKind kind : {JpegKind::kCmyk, JpegKind::kYcck}) {
    const std::string jpeg = MakeJpeg(48, 40, {.kind = kind, .quality = 100});
    const std::vector<uint8_t> rgb = MakeRgb(48, 40);
    const auto out = Decode(jpeg, Spec(40, 48));
    ASSERT_TRUE(out.ok()) << out.status();
    double error = 0;
    for (size_t i = 0; i < out->size(); i += 3) {
      const int ink = rgb[i] / 4;
      const double light = (255 - ink) / 255.0;
      for (size_t c = 0; c < 3; ++c) error += std::abs((*out)[i + c] - rgb[i + c] * light);
    }
    // YCCK loses more, as its chroma is subsampled.
    EXPECT_LT(error / static_cast<double>(out->size()), kind == JpegKind::kCmyk ? 1.0 : 4.0);
    // Grey is the luma of those colours.
    const auto grey = Decode(jpeg, Spec(40, 48, 1));
    ASSERT_TRUE(grey.ok()) << grey.status();
    for (size_t i = 0; i < grey->size(); ++i) {
      const double luma = 0.299 * (*out)[3 * i] + 0.587 * (*out)[3 * i + 1] + 0.114 * (*out)[3 * i + 2];
      ASSERT_NEAR((*grey)[i], luma, 0.51);
    }
  }
}

TEST(JpegTest, ArithmeticCodingWorks) {
  const std::string jpeg = MakeJpeg(40, 30, {.arithmetic = true});
  EXPECT_TRUE(Decode(jpeg, Spec(30, 40)).ok());
}

TEST(JpegTest, EveryTruncationIsDataLoss) {
  for (const bool progressive : {false, true}) {
    const std::string jpeg = MakeJpeg(40, 48, {.progressive = progressive});
    for (const ImageSpec& spec : {Spec(48, 40), Spec(5, 40)}) {  // the whole; a part in the middle
      for (size_t length = 0; length < jpeg.size(); ++length) {
        const auto out = Decode(std::string_view(jpeg).substr(0, length), spec);
        // If nothing but the end marker is missing, libjpeg may have read all codes.
        if (out.ok() && length + 4 > jpeg.size()) continue;
        ASSERT_EQ(out.status().code(), absl::StatusCode::kDataLoss)
            << length << " of " << jpeg.size() << ": " << out.status();
      }
    }
    EXPECT_TRUE(Decode(jpeg + "trailing bytes are not part of the image", Spec(5, 40)).ok());
  }
}

// An image about which libjpeg only warns is shown, whatever the crop is; one without an end is not.
TEST(JpegTest, TheVerdictDoesNotDependOnTheCrop) {
  const std::string sound = MakeJpeg(64, 640);
  const size_t tail = sound.size() * 9 / 10;
  std::string odd = sound;
  std::fill(odd.begin() + static_cast<ptrdiff_t>(tail), odd.end() - 2, '\xfe');
  std::string marked = sound;  // a marker that nobody knows
  marked[tail] = '\xff';
  marked[tail + 1] = '\x02';
  const std::string cut = sound.substr(0, tail);
  ImageDecoder decoder;
  for (const int height : {64, 640}) {
    const ImageSpec spec = Spec(height / 10, 64);
    std::vector<std::byte> out(spec.bytes());
    EXPECT_TRUE(decoder.Decode(AsBytes(sound), spec, 0, out).ok());
    EXPECT_EQ(decoder.warnings(), 0U);
    EXPECT_TRUE(decoder.Decode(AsBytes(odd), spec, 0, out).ok());
    EXPECT_EQ(decoder.Decode(AsBytes(marked), spec, 0, out).code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(decoder.Decode(AsBytes(cut), spec, 0, out).code(), absl::StatusCode::kDataLoss);
  }
}

// libjpeg does not warn of a doubled byte, and what it shows then depends on how many bytes follow.
TEST(JpegTest, DoubledBytesAreShownAsLibjpegShowsThem) {
  const std::string sound = MakeJpeg(83, 145, {.quality = 100, .noise = true});
  ImageSize size;
  const std::vector<uint8_t> sound_pixels = Packed(DecodeWhole(sound, 1, 3, &size));
  int changed = 0;
  const std::string zero("\xff\0", 2);
  size_t at = sound.find("\xff\xda");
  for (int i = 0; i < 20 && (at = sound.find(zero, at + 2)) != std::string::npos; ++i) {
    std::string doubled = sound;
    doubled.insert(at, 1, '\xff');
    const std::vector<uint8_t> theirs = Packed(DecodeWhole(doubled, 1, 3, &size));
    const auto ours = Decode(doubled, Spec(145, 83));
    ASSERT_TRUE(ours.ok()) << ours.status();
    ASSERT_TRUE(*ours == theirs) << i;
    if (theirs != sound_pixels) ++changed;
  }
  EXPECT_GT(changed, 0);
}

TEST(JpegTest, FlippedBytesNeverCrash) {
  int damaged = 0;
  for (const bool progressive : {false, true}) {
    const std::string jpeg = MakeJpeg(33, 31, {.progressive = progressive});
    for (size_t i = 0; i < jpeg.size(); ++i) {
      for (const int mask : {0x01, 0x80, 0xff}) {
        std::string bad = jpeg;
        bad[i] = static_cast<char>(bad[i] ^ mask);
        ImageSpec spec = Spec(16, 12);
        spec.augment = i % 2 == 0;
        const auto out = Decode(bad, spec, i);
        if (out.ok()) continue;
        ++damaged;
        ASSERT_TRUE(out.status().code() == absl::StatusCode::kDataLoss ||
                    out.status().code() == absl::StatusCode::kInvalidArgument)
            << out.status();
        ASSERT_FALSE(out.status().message().empty());
      }
    }
  }
  EXPECT_GT(damaged, 100);
}

TEST(JpegTest, UnsupportedKindsAreNamed) {
  ExpectError(MakeJpeg(16, 16, {.kind = JpegKind::kTwoComponents}), absl::StatusCode::kInvalidArgument, "2 components");
  std::string twelve_bits = MakeJpeg(16, 16);
  const size_t frame = twelve_bits.find("\xff\xc0");
  twelve_bits[frame + 4] = 12;
  ExpectError(twelve_bits, absl::StatusCode::kInvalidArgument, "precision 12");
  std::string lossless = MakeJpeg(16, 16);
  lossless[frame + 1] = '\xc3';
  ExpectError(lossless, absl::StatusCode::kInvalidArgument, "SOF type 0xc3");
}

/// Claims another size without having the data.
std::string WithSize(std::string jpeg, char marker, int width, int height) {
  const size_t frame = jpeg.find(std::string{'\xff', marker});
  EXPECT_NE(frame, std::string::npos);
  jpeg[frame + 5] = static_cast<char>(height >> 8);
  jpeg[frame + 6] = static_cast<char>(height);
  jpeg[frame + 7] = static_cast<char>(width >> 8);
  jpeg[frame + 8] = static_cast<char>(width);
  return jpeg;
}

TEST(JpegTest, EnormousClaimsAreRefusedAtOnce) {
  const std::string jpeg = MakeJpeg(16, 16);
  ExpectError(WithSize(jpeg, '\xc0', 65500, 65500), absl::StatusCode::kInvalidArgument,
              "65500 x 65500 pixels is refused");
  ExpectError(WithSize(jpeg, '\xc0', 65535, 16), absl::StatusCode::kInvalidArgument, "65500");
  ExpectError(WithSize(jpeg, '\xc0', 0, 16), absl::StatusCode::kDataLoss, "damaged");
  const std::string progressive = WithSize(MakeJpeg(16, 16, {.progressive = true}), '\xc2', 16000, 16000);
  WaitingBudget process(1 << 20);
  DecodeMemory memory(process, 100 << 20);
  ImageDecoder decoder(&memory);
  const ImageSpec spec = Spec(8, 8);
  std::vector<std::byte> out(spec.bytes());
  const absl::Status status = decoder.Decode(AsBytes(progressive), spec, 0, out);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ToStd(status.message())), HasSubstr("the budget is 256 MiB"));
}

TEST(JpegTest, ManyScansAreRefused) {
  EXPECT_TRUE(Decode(testing::MakeManyScans(32, 32, 60), Spec(8, 8)).ok());
  ExpectError(testing::MakeManyScans(32, 32, 200), absl::StatusCode::kDataLoss, "more scans");
}

TEST(JpegTest, TablesOfAnEarlierImageAreNotUsed) {
  const std::string good = MakeJpeg(16, 16);
  std::string bare = good;
  for (size_t at; (at = bare.find("\xff\xdb")) != std::string::npos;) {
    bare.erase(at,
               2 + static_cast<size_t>(static_cast<uint8_t>(bare[at + 2]) << 8 | static_cast<uint8_t>(bare[at + 3])));
  }
  ImageDecoder decoder;
  const ImageSpec spec = Spec(16, 16);
  std::vector<std::byte> out(spec.bytes());
  EXPECT_TRUE(decoder.Decode(AsBytes(good), spec, 0, out).ok());
  const absl::Status status = decoder.Decode(AsBytes(bare), spec, 0, out);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
}

TEST(PngTest, EveryColourTypeAndDepth) {
  const std::vector<std::pair<int, std::vector<int>>> kinds{
      {0, {1, 2, 4, 8, 16}}, {2, {8, 16}}, {3, {1, 2, 4, 8}}, {4, {8, 16}}, {6, {8, 16}}};
  for (const auto& [color_type, depths] : kinds) {
    for (const int depth : depths) {
      for (const bool interlaced : {false, true}) {
        for (const auto& [width, height] : std::vector<std::pair<int, int>>{{1, 1}, {5, 3}, {37, 29}, {64, 64}}) {
          if (interlaced && depth < 8) continue;  // spng cannot write those
          const testing::Png png =
              MakePng(width, height, {.color_type = color_type, .depth = depth, .interlaced = interlaced});
          const auto out = Decode(png.bytes, Spec(height, width));
          ASSERT_TRUE(out.ok()) << out.status() << " type " << color_type << " depth " << depth;
          ASSERT_EQ(*out, png.rgb) << "type " << color_type << " depth " << depth << " interlaced " << interlaced << " "
                                   << width;
          const auto grey = Decode(png.bytes, Spec(height, width, 1));
          ASSERT_TRUE(grey.ok());
          for (size_t i = 0; i < grey->size(); ++i) {
            const uint8_t* p = &png.rgb[3 * i];
            ASSERT_EQ((*grey)[i], (p[0] * 19595 + p[1] * 38470 + p[2] * 7471 + 0x8000) >> 16);
          }
        }
      }
    }
  }
}

TEST(PngTest, PartsOfInterlacedAndPlainImagesAgree) {
  const testing::Png plain = MakePng(120, 90, {});
  const testing::Png interlaced = MakePng(120, 90, {.interlaced = true});
  ASSERT_EQ(plain.rgb, interlaced.rgb);
  for (uint64_t key = 0; key < 20; ++key) {
    for (const int channels : {3, 1}) {
      ImageSpec spec = Spec(20, 30, channels);
      spec.augment = key % 5 != 0;
      EXPECT_EQ(*Decode(plain.bytes, spec, key), *Decode(interlaced.bytes, spec, key));
    }
  }
}

// Bytes after the pixels are not looked at, as by Pillow, with which tests/wild compares each outcome. The last codes
// say only that there are no more, and the length of the last chunk does not matter if it reaches to the end of the
// file.
TEST(PngTest, EveryTruncationAndEveryFlippedByteOfThePixelsIsDataLoss) {
  for (const bool interlaced : {false, true}) {
    const testing::Png png = MakePng(24, 20, {.color_type = 3, .interlaced = interlaced});
    const ImageSpec spec = Spec(4, 24);
    constexpr size_t kEnd = 12;       // IEND
    constexpr size_t kChecksums = 8;  // of the codec, and of the chunk
    constexpr size_t kLastCodes = 48;
    const size_t codes_at = png.bytes.find("IDAT");
    const size_t codes_end = png.bytes.size() - kEnd - kChecksums;
    for (size_t length = 0; length < png.bytes.size(); ++length) {
      const auto out = Decode(std::string_view(png.bytes).substr(0, length), spec);
      if (length + 1 < codes_end) {
        ASSERT_EQ(out.status().code(), absl::StatusCode::kDataLoss) << length << ": " << out.status();
      } else if (length >= codes_end) {
        ASSERT_EQ(*out, *Decode(png.bytes, spec)) << length;
      }
    }
    for (size_t i = 0; i < codes_end + 4; ++i) {
      std::string bad = png.bytes;
      bad[i] = static_cast<char>(bad[i] ^ 0x10);
      const auto out = Decode(bad, spec);
      // A damaged width or height may be refused for its size before its checksum was read.
      if (i >= 16 && i < 24 && out.status().code() == absl::StatusCode::kInvalidArgument) continue;
      const bool may_be_shown = (i + 4 >= codes_at && i < codes_at) || (i + kLastCodes >= codes_end && i < codes_end);
      if (may_be_shown && out.ok()) continue;
      ASSERT_EQ(out.status().code(), absl::StatusCode::kDataLoss) << i << ": " << out.status();
    }
    for (size_t i = codes_end + 4; i < png.bytes.size(); ++i) {
      std::string odd = png.bytes;
      odd[i] = static_cast<char>(odd[i] ^ 0x10);
      EXPECT_EQ(*Decode(odd, spec), *Decode(png.bytes, spec)) << i;
    }
    EXPECT_TRUE(Decode(png.bytes + "trailing", spec).ok());
  }
}

TEST(ImageTest, OtherFormatsAreNamed) {
  const auto expect = [](std::string_view bytes, std::string_view name) {
    ExpectError(bytes, absl::StatusCode::kInvalidArgument, name);
    EXPECT_EQ(ReadImageSize(AsBytes(bytes)).status().code(), absl::StatusCode::kInvalidArgument);
  };
  expect(std::string_view("\0\0\0\x20"
                          "ftypavif....",
                          16),
         "AVIF");
  expect(std::string_view("\0\0\0\x18"
                          "ftypheic....",
                          16),
         "HEIF");
  expect(std::string_view("II+\0....", 8), "BigTIFF");
  // A file that consists only of its beginning is damaged.
  for (const std::string_view head :
       {std::string_view("GIF89a.."), std::string_view("RIFF\0\0\0\0WEBPVP8 ", 16), std::string_view("II*\0....", 8),
        std::string_view("MM\0*....", 8), std::string_view("BM......")}) {
    ExpectError(head, absl::StatusCode::kDataLoss, "damaged");
  }
  ExpectError("", absl::StatusCode::kDataLoss, "empty");
  ExpectError("hello world", absl::StatusCode::kDataLoss, "11 bytes that begin with 68656c6c6f20776f");
  ExpectError("\xff\xd8", absl::StatusCode::kDataLoss, "ffd8");
}

TEST(ImageTest, ReadsSizes) {
  EXPECT_EQ(ReadImageSize(AsBytes(MakeJpeg(123, 45)))->width, 123);
  EXPECT_EQ(ReadImageSize(AsBytes(MakeJpeg(123, 45)))->height, 45);
  EXPECT_EQ(ReadImageSize(AsBytes(MakePng(67, 89, {}).bytes))->width, 67);
  EXPECT_EQ(ReadImageSize(AsBytes(MakePng(67, 89, {}).bytes))->height, 89);
}

TEST(ImageTest, LayoutsAndTypesHoldTheSamePixels) {
  const std::string jpeg = MakeJpeg(90, 70);
  for (const int channels : {3, 1}) {
    ImageSpec spec = Spec(32, 41, channels);
    spec.mean = {0.485F, 0.456F, 0.406F};
    spec.std = {0.229F, 0.224F, 0.225F};
    const std::vector<uint8_t> base = *Decode(jpeg, spec);
    for (const Layout layout : {Layout::kNhwc, Layout::kNchw}) {
      for (const DType dtype : {DType::kU8, DType::kF32}) {
        spec.layout = layout;
        spec.dtype = dtype;
        ImageDecoder decoder;
        std::vector<std::byte> out(spec.bytes() + 1);
        std::vector<std::byte> pixels(spec.pixels());
        // The output begins one byte further, because nobody promised alignment.
        const MutableByteSpan into = MutableByteSpan(out).subspan(1);
        ASSERT_TRUE(decoder.Decode(AsBytes(jpeg), spec, 0, into, pixels).ok());
        EXPECT_EQ(std::memcmp(pixels.data(), base.data(), base.size()), 0);
        for (int y = 0; y < 32; ++y) {
          for (int x = 0; x < 41; ++x) {
            for (int c = 0; c < channels; ++c) {
              const uint8_t pixel = base[(y * 41 + x) * channels + c];
              const size_t at = layout == Layout::kNhwc ? (y * 41 + x) * channels + c : (c * 32 + y) * 41 + x;
              if (dtype == DType::kU8) {
                ASSERT_EQ(static_cast<uint8_t>(into[at]), pixel);
              } else {
                float value = 0;
                std::memcpy(&value, &into[at * 4], 4);
                ASSERT_EQ(value, static_cast<float>((pixel / 255.0 - double{spec.mean[c]}) / double{spec.std[c]}));
              }
            }
          }
        }
      }
    }
  }
}

TEST(ImageTest, FlipMirrorsTheSameCrop) {
  const std::string jpeg = MakeJpeg(150, 100);
  for (uint64_t key = 0; key < 10; ++key) {
    ImageSpec spec = Spec(24, 25);
    spec.augment = true;
    spec.flip_probability = 0;
    const std::vector<uint8_t> plain = *Decode(jpeg, spec, key);
    spec.flip_probability = 1;
    const std::vector<uint8_t> flipped = *Decode(jpeg, spec, key);
    for (int y = 0; y < 24; ++y) {
      for (int x = 0; x < 25; ++x) {
        for (int c = 0; c < 3; ++c) ASSERT_EQ(flipped[(y * 25 + x) * 3 + c], plain[(y * 25 + 24 - x) * 3 + c]);
      }
    }
  }
}

TEST(ImageTest, KeyMattersOnlyWhenAugmenting) {
  const std::string jpeg = MakeJpeg(150, 100);
  ImageSpec spec = Spec(24, 24);
  EXPECT_EQ(*Decode(jpeg, spec, 1), *Decode(jpeg, spec, 2));
  spec.augment = true;
  EXPECT_EQ(*Decode(jpeg, spec, 1), *Decode(jpeg, spec, 1));
  EXPECT_NE(*Decode(jpeg, spec, 1), *Decode(jpeg, spec, 2));
}

TEST(ImageTest, WhatWasDecodedBeforeLeavesNoTrace) {
  const std::vector<std::string> images{MakeJpeg(640, 480),
                                        MakeJpeg(33, 300, {.progressive = true}),
                                        MakePng(200, 100, {.interlaced = true}).bytes,
                                        MakeJpeg(50, 60, {.kind = JpegKind::kCmyk}),
                                        MakePng(10, 10, {.color_type = 0, .depth = 1}).bytes,
                                        MakeJpeg(100, 100).substr(0, 900),
                                        "not an image"};
  ImageDecoder used;
  for (int round = 0; round < 60; ++round) {
    const std::string& image = images[round * 5 % images.size()];
    ImageSpec spec = Spec(1 + round * 7 % 90, 1 + round * 11 % 130, round % 3 == 0 ? 1 : 3);
    spec.augment = round % 2 == 0;
    spec.dtype = round % 5 == 0 ? DType::kF32 : DType::kU8;
    spec.std[0] = static_cast<float>(1 + round % 4);
    std::vector<uint8_t> out(spec.bytes());
    const absl::Status status = used.Decode(AsBytes(image), spec, round, std::as_writable_bytes(std::span(out)));
    const auto fresh = Decode(image, spec, round);
    ASSERT_EQ(status.code(), fresh.status().code());
    if (fresh.ok()) {
      ASSERT_EQ(out, *fresh) << round;
    }
  }
}

TEST(ImageTest, OptionsAreChecked) {
  const std::string jpeg = MakeJpeg(16, 16);
  const auto expect = [](auto change, std::string_view message) {
    ImageSpec spec;
    change(spec);
    const absl::Status status = spec.Check();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(ToStd(status.message())), HasSubstr(std::string(message)));
  };
  EXPECT_TRUE(ImageSpec().Check().ok());
  expect([](ImageSpec& s) { s.height = 0; }, "224 x 0");
  expect([](ImageSpec& s) { s.width = -1; }, "-1 x 224");
  expect([](ImageSpec& s) { s.width = 16385; }, "16384");
  expect([](ImageSpec& s) { s.channels = 2; }, "2 channels");
  expect([](ImageSpec& s) { s.crop_scale = {0, 1}; }, "crop scale");
  expect([](ImageSpec& s) { s.crop_scale = {0.5, 1.5}; }, "crop scale");
  expect([](ImageSpec& s) { s.crop_scale = {std::nan(""), 1}; }, "crop scale");
  expect([](ImageSpec& s) { s.crop_ratio = {2, 1}; }, "crop ratio");
  expect([](ImageSpec& s) { s.crop_ratio = {1, INFINITY}; }, "crop ratio");
  expect([](ImageSpec& s) { s.flip_probability = 1.1; }, "flip probability");
  expect([](ImageSpec& s) { s.mean[1] = INFINITY; }, "mean");
  expect([](ImageSpec& s) { s.std[2] = 0; }, "deviation 0 of channel 2");

  ImageDecoder decoder;
  const ImageSpec spec = Spec(4, 4);
  std::vector<std::byte> out(48);
  EXPECT_TRUE(decoder.Decode(AsBytes(jpeg), spec, 0, out).ok());
  EXPECT_EQ(decoder.Decode(AsBytes(jpeg), spec, 0, MutableByteSpan(out).first(47)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(decoder.Decode(AsBytes(jpeg), spec, 0, out, MutableByteSpan(out).first(1)).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ReadFrameTest, IsWhatTheDecoderShows) {
  const std::string jpeg = MakeJpeg(61, 47);
  ImageDecoder decoder;
  for (const bool augment : {false, true}) {
    ImageSpec spec{.height = 24, .width = 32, .augment = augment};
    std::vector<std::byte> out(spec.bytes());
    ASSERT_TRUE(decoder.Decode(AsBytes(jpeg), spec, 7, out).ok());
    const absl::StatusOr<Frame> frame = ReadFrame(AsBytes(jpeg), spec, 7);
    ASSERT_TRUE(frame.ok()) << frame.status();
    const Frame& shown = decoder.frame();
    EXPECT_EQ(std::tie(frame->image.width, frame->image.height, frame->crop.flip),
              std::tie(shown.image.width, shown.image.height, shown.crop.flip));
    EXPECT_EQ(std::tie(frame->crop.x, frame->crop.y, frame->crop.width, frame->crop.height),
              std::tie(shown.crop.x, shown.crop.y, shown.crop.width, shown.crop.height));
    EXPECT_EQ(std::tie(frame->crop.left, frame->crop.top, frame->crop.right, frame->crop.bottom),
              std::tie(shown.crop.left, shown.crop.top, shown.crop.right, shown.crop.bottom));
  }
  EXPECT_TRUE(absl::IsDataLoss(ReadFrame(AsBytes(std::string_view("\xff\xd8\xff")), ImageSpec(), 7).status()));
}

}  // namespace
}  // namespace millrace
