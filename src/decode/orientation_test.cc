#include "decode/orientation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "decode/png_writer.h"
#include "decode/testing/test_images.h"

namespace millrace {
namespace {

using testing::JpegKind;
using testing::MakeJpeg;
using namespace std::string_literals;

constexpr int kWidth = 40;
constexpr int kHeight = 24;

// Returns the payload of an APP1 segment.
std::string Exif(int orientation, bool big) {
  const auto number = [big](uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * (big ? bytes - 1 - i : i));
    return text;
  };
  const std::string other = number(0x010f, 2) + number(2, 2) + number(4, 4) + "Cam\0"s;
  const std::string tag = number(0x0112, 2) + number(3, 2) + number(1, 4) + number(orientation, 2) + "\0\0"s;
  return "Exif\0\0"s + (big ? "MM" : "II") + number(42, 2) + number(8, 4) + number(2, 2) + other + tag + number(0, 4);
}

std::string Photo(int orientation, bool big) {
  return MakeJpeg(kWidth, kHeight, {.kind = JpegKind::kYcc444, .exif = Exif(orientation, big)});
}

std::vector<uint8_t> DecodeFile(const std::string& file, const ImageSpec& spec, uint64_t key = 0) {
  ImageDecoder decoder;
  std::vector<uint8_t> out(spec.bytes());
  const absl::Status status = decoder.Decode(AsBytes(file), spec, key, std::as_writable_bytes(std::span(out)));
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

ImageSpec TurnedSpec(int height, int width, bool turn = true) {
  ImageSpec spec;
  spec.height = height;
  spec.width = width;
  spec.exif_orientation = turn;
  return spec;
}

// Follows the EXIF standard, which says where row 0 and column 0 of the stored image are seen.
std::vector<uint8_t> Seen(const std::vector<uint8_t>& stored, int orientation, int* width, int* height) {
  const bool swap = orientation >= 5;
  *width = swap ? kHeight : kWidth;
  *height = swap ? kWidth : kHeight;
  std::vector<uint8_t> seen(stored.size());
  for (int row = 0; row < kHeight; ++row) {
    for (int column = 0; column < kWidth; ++column) {
      int x = 0;
      int y = 0;
      switch (orientation) {
        case 1:
          x = column, y = row;
          break;  // top, left
        case 2:
          x = *width - 1 - column, y = row;
          break;  // top, right
        case 3:
          x = *width - 1 - column, y = *height - 1 - row;
          break;  // bottom, right
        case 4:
          x = column, y = *height - 1 - row;
          break;  // bottom, left
        case 5:
          x = row, y = column;
          break;  // left, top
        case 6:
          x = *width - 1 - row, y = column;
          break;  // right, top
        case 7:
          x = *width - 1 - row, y = *height - 1 - column;
          break;  // right, bottom
        case 8:
          x = row, y = *height - 1 - column;
          break;  // left, bottom
      }
      for (int c = 0; c < 3; ++c) seen[(y * *width + x) * 3 + c] = stored[(row * kWidth + column) * 3 + c];
    }
  }
  return seen;
}

std::string AsPng(const std::vector<uint8_t>& rgb, int width, int height) {
  PngWriter writer;
  EXPECT_TRUE(writer.Start(width, height).ok());
  std::vector<uint8_t> row(static_cast<size_t>(width) * 4);
  for (int y = 0; y < height; ++y) {
    for (int i = 0; i < width * 3; ++i) row[i / 3 * 4 + i % 3] = rgb[static_cast<size_t>(y) * width * 3 + i];
    EXPECT_TRUE(writer.Put(row.data()).ok());
  }
  return *writer.Finish();
}

TEST(Orientation, PixelsLieWhereTheCameraSawThem) {
  const std::vector<uint8_t> stored = DecodeFile(Photo(6, true), TurnedSpec(kHeight, kWidth, /*turn=*/false));
  for (int orientation = 1; orientation <= 8; ++orientation) {
    for (const bool big : {false, true}) {
      int width = 0;
      int height = 0;
      const std::vector<uint8_t> seen = Seen(stored, orientation, &width, &height);
      for (const Interpolation interpolation : {Interpolation::kBilinear, Interpolation::kNearest}) {
        ImageSpec spec = TurnedSpec(height, width);
        spec.interpolation = interpolation;
        EXPECT_EQ(DecodeFile(Photo(orientation, big), spec), seen) << fmt::format("{} {}", orientation, big);
      }
    }
  }
}

// Crops, flips and sizes are those of the picture as it is seen: of a PNG that is stored so.
TEST(Orientation, ItIsTurnedBeforeAllElse) {
  const std::vector<uint8_t> stored = DecodeFile(Photo(1, true), TurnedSpec(kHeight, kWidth, /*turn=*/false));
  for (int orientation = 1; orientation <= 8; ++orientation) {
    int width = 0;
    int height = 0;
    const std::vector<uint8_t> seen = Seen(stored, orientation, &width, &height);
    const std::string png = AsPng(seen, width, height);
    for (uint64_t key = 0; key < 20; ++key) {
      for (const bool planes : {false, true}) {
        ImageSpec spec = TurnedSpec(23, 19);  // a JPEG is not shrunk for it, as a PNG is not
        spec.augment = key > 0;
        spec.exact = true;
        spec.layout = planes ? Layout::kNchw : Layout::kNhwc;
        const std::vector<uint8_t> turned = DecodeFile(Photo(orientation, false), spec, key);
        const std::vector<uint8_t> expected = DecodeFile(png, spec, key);
        for (size_t i = 0; i < expected.size(); ++i)
          ASSERT_LE(std::abs(turned[i] - expected[i]), 1) << fmt::format("{} {} {}", orientation, key, i);
      }
    }
  }
}

TEST(Orientation, WhatExifDataDoNotSaySensiblyCountsNot) {
  const auto turns = [](const std::string& exif) {
    return OrientationOf(AsBytes(MakeJpeg(16, 16, {.exif = exif}))).turns();
  };
  EXPECT_TRUE(turns(Exif(6, true)));
  EXPECT_FALSE(turns(Exif(1, true)));
  EXPECT_FALSE(turns(Exif(0, true)));
  EXPECT_FALSE(turns(Exif(9, false)));
  EXPECT_FALSE(turns(""));
  EXPECT_FALSE(turns("Exif\0\0"s));
  EXPECT_FALSE(turns("Exif\0\0II*\0\xff\xff\xff\xff"s));
  const std::string whole = Exif(6, false);
  for (size_t bytes = 0; bytes + 8 < whole.size(); ++bytes) EXPECT_FALSE(turns(whole.substr(0, bytes))) << bytes;
}

}  // namespace
}  // namespace millrace
