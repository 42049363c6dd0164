#include "decode/reencode.h"

#include <gtest/gtest.h>
#include <webp/encode.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/crypto.h"
#include "decode/image.h"
#include "decode/image_metadata.h"
#include "decode/jpeg_segments.h"
#include "decode/jpeg_tiles.h"
#include "decode/orientation.h"
#include "decode/testing/test_images.h"

namespace millrace {
namespace {

using testing::JpegKind;
using testing::MakeJpeg;
using testing::MakePng;

std::string Changed(const std::string& image, const ImageChange& change) {
  const absl::StatusOr<std::optional<std::string>> changed = ReencodeImage(AsBytes(image), change);
  EXPECT_TRUE(changed.ok()) << changed.status();
  EXPECT_TRUE(changed.ok() && changed->has_value());
  return changed.ok() ? changed->value_or("") : "";
}

std::vector<uint8_t> PixelsOf(const std::string& image, ImageSize size) {
  const ImageSpec spec{.height = size.height, .width = size.width};
  std::vector<uint8_t> out(spec.bytes());
  ImageDecoder decoder;
  const absl::Status status = decoder.Decode(AsBytes(image), spec, 0, std::as_writable_bytes(std::span(out)));
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

double MeanDifference(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum / static_cast<double>(a.size());
}

TEST(ReencodeTest, ShorterSideIsAsGiven) {
  for (const bool progressive : {false, true}) {
    for (const ImageSize from : {ImageSize{300, 200}, {200, 300}, {1601, 401}}) {
      const std::string jpeg = MakeJpeg(from.width, from.height, {.progressive = progressive});
      const std::string resized = Changed(jpeg, {.shorter_side = 100});
      const absl::StatusOr<ImageSize> to = ReadImageSize(AsBytes(resized));
      ASSERT_TRUE(to.ok()) << to.status();
      EXPECT_EQ(std::min(to->width, to->height), 100);
      const double ratio = static_cast<double>(from.width) / from.height;
      EXPECT_NEAR(static_cast<double>(to->width) / to->height, ratio, 0.01 * ratio);
      // The reference is decoded from the source in one step; the second JPEG loses a little more.
      EXPECT_LT(MeanDifference(PixelsOf(resized, *to), PixelsOf(jpeg, *to)), 6.0);
    }
  }
}

TEST(ReencodeTest, ACutImageIsAnErrorAtEveryLength) {
  const std::string jpeg = MakeJpeg(300, 200, {.noise = true});
  for (size_t size = 1000; size + 2 < jpeg.size(); size += 499) {
    const std::string cut = jpeg.substr(0, size);
    for (const ImageChange& change : {ImageChange{.shorter_side = 150}, ImageChange{.jpeg_tiles = true},
                                      ImageChange{.shorter_side = 150, .jpeg_tiles = true}}) {
      const absl::Status status = ReencodeImage(AsBytes(cut), change).status();
      EXPECT_TRUE(absl::IsDataLoss(status)) << size << ": " << status;
    }
  }
}

TEST(ReencodeTest, NeverEnlarges) {
  for (const std::string& image : {MakeJpeg(100, 200), MakeJpeg(99, 98), MakePng(100, 130, {}).bytes}) {
    const auto changed = ReencodeImage(AsBytes(image), {.shorter_side = 100});
    ASSERT_TRUE(changed.ok()) << changed.status();
    EXPECT_FALSE(changed->has_value());
  }
}

TEST(ReencodeTest, GreyStaysGreyAndExifStays) {
  constexpr size_t kComponentsAt = 5;
  const std::string exif("Exif\0\0orientation", 17);
  const std::string jpeg = MakeJpeg(300, 200, {.kind = JpegKind::kGrey, .exif = exif});
  const std::string resized = Changed(jpeg, {.shorter_side = 64, .jpeg_tiles = true});
  JpegSegments segments(AsBytes(resized));
  std::string found;
  int components = 0;
  while (const auto segment = segments.Next()) {
    if (segment->marker == jpeg_marker::kApp1) found = AsText(segment->payload);
    if (segment->marker == jpeg_marker::kSof0) components = static_cast<int>(segment->payload[kComponentsAt]);
  }
  EXPECT_EQ(found, exif);
  EXPECT_EQ(components, 1);
}

TEST(ReencodeTest, QualityAndTilesCount) {
  const std::string jpeg = MakeJpeg(400, 300);
  const std::string good = Changed(jpeg, {.shorter_side = 200, .quality = 95});
  const std::string poor = Changed(jpeg, {.shorter_side = 200, .quality = 50});
  EXPECT_GT(good.size(), poor.size());
  const std::string tiled = Changed(jpeg, {.shorter_side = 200, .quality = 95, .jpeg_tiles = true});
  const ImageSize size{267, 200};
  EXPECT_EQ(PixelsOf(good, size), PixelsOf(tiled, size));
  JpegTiles tiles;
  EXPECT_FALSE(tiles.Parse(AsBytes(good)));
  EXPECT_TRUE(tiles.Parse(AsBytes(tiled)));
}

TEST(ReencodeTest, PngInColourStaysPngAndMasksStayAsTheyAre) {
  for (const int type : {2, 6}) {
    for (const int depth : {8, 16}) {
      const std::string png = MakePng(200, 160, {.color_type = type, .depth = depth}).bytes;
      const std::string resized = Changed(png, {.shorter_side = 80});
      EXPECT_EQ(resized.substr(1, 3), "PNG");
      const ImageSize size{100, 80};
      EXPECT_EQ(ReadImageSize(AsBytes(resized))->width, 100);
      EXPECT_EQ(PixelsOf(resized, size), PixelsOf(png, size));  // the filter is the same, and nothing is lost
    }
  }
  for (const int type : {0, 3, 4}) {
    const auto kept =
        ReencodeImage(AsBytes(MakePng(200, 160, {.color_type = type}).bytes), {.shorter_side = 80, .jpeg_tiles = true});
    ASSERT_TRUE(kept.ok()) << kept.status();
    EXPECT_FALSE(kept->has_value());
  }
}

// Returns EXIF data that say the orientation 6.
std::string ExifOfTurned() {
  return std::string("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0", 26);
}

TEST(ReencodeTest, OrientationStays) {
  const std::string exif = ExifOfTurned();
  const auto number = [](uint64_t value, bool big) {
    std::string text;
    for (int i = 0; i < 4; ++i) text += static_cast<char>(value >> 8 * (big ? 3 - i : i));
    return text;
  };
  std::string png = MakePng(200, 160, {.color_type = 2}).bytes;
  const std::string chunk = "eXIf" + exif;
  png.insert(33, number(exif.size(), true) + chunk + number(Crc32(AsBytes(chunk)), true));
  std::vector<uint8_t> rgb(size_t{3} * 200 * 160, 77);
  uint8_t* bytes = nullptr;
  const size_t size = WebPEncodeLosslessRGB(rgb.data(), 200, 160, 600, &bytes);
  const std::string simple(reinterpret_cast<const char*>(bytes), size);
  WebPFree(bytes);
  const std::string head = std::string("VP8X") + number(10, false) + "\x08" + std::string(9, '\0');
  const std::string from = "RIFF" + number(12 + head.size() + exif.size(), false) + "WEBP" + head + "EXIF" +
                           number(exif.size(), false) + exif;
  const std::string webp = WithMetadataOfWebp(simple, AsBytes(from), 200, 160);
  EXPECT_FALSE(OrientationOf(AsBytes(simple)).turns());
  for (const std::string& image : {png, webp}) {
    ASSERT_TRUE(OrientationOf(AsBytes(image)).transposed);
    const std::string resized = Changed(image, {.shorter_side = 80});
    EXPECT_TRUE(OrientationOf(AsBytes(resized)).transposed);
    const absl::StatusOr<ImageSize> to = ReadImageSize(AsBytes(resized));
    ASSERT_TRUE(to.ok()) << to.status();
    EXPECT_EQ(to->width, 100);
    EXPECT_EQ(PixelsOf(resized, *to), PixelsOf(image, *to)) << "nothing is lost";
  }
}

TEST(ReencodeTest, DamageAndOtherFormatsAreErrors) {
  const std::string jpeg = MakeJpeg(300, 200);
  const ImageChange resize{.shorter_side = 64};
  EXPECT_TRUE(absl::IsDataLoss(ReencodeImage(AsBytes(jpeg.substr(0, jpeg.size() / 2)), resize).status()));
  EXPECT_TRUE(absl::IsDataLoss(ReencodeImage(AsBytes("no image at all"), resize).status()));
  EXPECT_TRUE(absl::IsDataLoss(ReencodeImage(AsBytes("GIF89a......"), resize).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReencodeImage(AsBytes(std::string_view("\0\0\0\x20"
                                                                             "ftypavif....",
                                                                             16)),
                                                    resize)
                                          .status()));
  EXPECT_TRUE(ReencodeImage(AsBytes("GIF89a......"), {.jpeg_tiles = true}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(ReencodeImage(AsBytes(jpeg), {.shorter_side = 9, .quality = 0}).status()));
}

}  // namespace
}  // namespace millrace
