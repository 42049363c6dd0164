#include "decode/jpeg_tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "decode/image_readers.h"
#include "decode/jpeg_segments.h"
#include "decode/jpeg_tiler.h"
#include "decode/testing/test_images.h"

namespace millrace {
namespace {

using testing::DecodeWhole;
using testing::JpegKind;
using testing::MakeJpeg;

constexpr uint64_t kMemory = uint64_t{64} << 20;

std::string Tiled(const std::string& jpeg) {
  const absl::StatusOr<std::optional<std::string>> tiled = TileJpeg(AsBytes(jpeg), kMemory);
  EXPECT_TRUE(tiled.ok()) << tiled.status();
  return tiled.ok() && *tiled ? **tiled : std::string();
}

absl::StatusOr<std::vector<uint8_t>> ReadOnce(RowReader* reader, const std::string& jpeg, const Region& region,
                                              int denominator, PixelForm form) {
  RETURN_IF_ERROR(reader->Open(AsBytes(jpeg)).status());
  RETURN_IF_ERROR(reader->Start(region, denominator, form));
  std::vector<uint8_t> pixels;
  for (int row = region.top; row < region.bottom;) {
    ASSIGN_OR_RETURN(const RowBlock block, reader->Next());
    for (int i = 0; i < block.rows; ++i, ++row) {
      const uint8_t* from = block.first + block.stride * i;
      for (int x = region.left; x < region.right; ++x, from += BytesOf(form)) {
        pixels.insert(pixels.end(), from, from + std::min(BytesOf(form), 3));
      }
    }
  }
  RETURN_IF_ERROR(reader->Finish());
  return pixels;
}

/// Returns the pixels of a region, without the fourth byte.
absl::StatusOr<std::vector<uint8_t>> ReadRegion(const std::string& jpeg, const Region& region, int denominator,
                                                PixelForm form, JpegReading reading = JpegReading::kNeeded) {
  const std::unique_ptr<RowReader> reader = MakeJpegReader(reading);
  auto pixels = ReadOnce(reader.get(), jpeg, region, denominator, form);
  if (!reader->MustReadAgain(pixels.status())) return pixels;
  pixels = ReadOnce(reader.get(), jpeg, region, denominator, form);
  EXPECT_FALSE(reader->MustReadAgain(pixels.status()));
  return pixels;
}

/// Returns the same pixels, cut out of the whole image.
std::vector<uint8_t> CutOut(const std::vector<uint8_t>& whole, ImageSize size, const Region& region, int bytes) {
  std::vector<uint8_t> pixels;
  for (int y = region.top; y < region.bottom; ++y) {
    for (int x = region.left; x < region.right; ++x) {
      const uint8_t* const from = whole.data() + (static_cast<size_t>(y) * size.width + x) * bytes;
      pixels.insert(pixels.end(), from, from + std::min(bytes, 3));
    }
  }
  return pixels;
}

Region DrawRegion(ImageSize size, Rng& rng) {
  Region region;
  region.left = static_cast<int>(rng.Below(size.width));
  region.top = static_cast<int>(rng.Below(size.height));
  // Small regions, and those that end at the border, come more often than by chance.
  const int widest = rng.Below(2) == 0 ? size.width - region.left : std::min(3, size.width - region.left);
  const int highest = rng.Below(2) == 0 ? size.height - region.top : std::min(3, size.height - region.top);
  region.right = region.left + 1 + static_cast<int>(rng.Below(widest));
  region.bottom = region.top + 1 + static_cast<int>(rng.Below(highest));
  return region;
}

// Random crops of `jpeg` at all scales against all of the image through plain libjpeg.
void ExpectExactCrops(const std::string& jpeg, int crops, Rng& rng) {
  for (const int channels : {3, 1}) {
    for (const int denominator : {1, 2, 4, 8}) {
      ImageSize size;
      const int bytes = channels == 3 ? 4 : 1;
      const std::vector<uint8_t> whole = DecodeWhole(jpeg, denominator, channels, &size);
      if (whole.empty()) continue;
      for (int i = 0; i < crops; ++i) {
        const Region region = DrawRegion(size, rng);
        const auto pixels = ReadRegion(jpeg, region, denominator, channels == 3 ? PixelForm::kRgbx : PixelForm::kGrey);
        ASSERT_TRUE(pixels.ok()) << pixels.status();
        ASSERT_TRUE(*pixels == CutOut(whole, size, region, bytes))
            << size.width << " x " << size.height << " / " << denominator << ", channels " << channels << ": "
            << region.left << ", " << region.top << " to " << region.right << ", " << region.bottom;
      }
    }
  }
}

constexpr JpegKind kKinds[] = {JpegKind::kYcc420, JpegKind::kYcc422, JpegKind::kYcc440, JpegKind::kYcc411,
                               JpegKind::kYcc444, JpegKind::kRgb,    JpegKind::kGrey};

TEST(JpegTilesTest, CropsAreThoseOfTheWholeImage) {
  Rng rng(1);
  for (const JpegKind kind : kKinds) {
    for (const ImageSize size :
         {ImageSize{1, 1}, {2, 130}, {17, 9}, {33, 31}, {64, 64}, {130, 47}, {197, 133}, {256, 96}}) {
      for (const bool progressive : {false, true}) {
        SCOPED_TRACE(::testing::Message() << static_cast<int>(kind) << (progressive ? " progressive" : ""));
        const std::string jpeg = MakeJpeg(size.width, size.height, {.kind = kind, .progressive = progressive});
        ASSERT_NO_FATAL_FAILURE(ExpectExactCrops(Tiled(jpeg), 12, rng));
      }
    }
  }
}

// Other programs write such files: with any interval, also those that do not divide a row.
TEST(JpegTilesTest, CropsOfForeignIntervalsAreThoseOfTheWholeImage) {
  Rng rng(2);
  for (const JpegKind kind : {JpegKind::kYcc420, JpegKind::kYcc422, JpegKind::kYcc444, JpegKind::kGrey}) {
    for (const int interval : {1, 2, 3, 4, 6, 7, 12, 24}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(kind) << ", interval " << interval);
      ASSERT_NO_FATAL_FAILURE(
          ExpectExactCrops(MakeJpeg(190, 77, {.kind = kind, .restart_interval = interval}), 12, rng));
    }
  }
}

// Plain libjpeg does not make RGB of these: the reader that reads all is what is known to be right.
TEST(JpegTilesTest, CropsOfInksAreThoseOfTheWholeImage) {
  Rng rng(3);
  for (const JpegKind kind : {JpegKind::kCmyk, JpegKind::kYcck}) {
    const std::string jpeg = MakeJpeg(190, 77, {.kind = kind});
    const std::string tiled = Tiled(jpeg);
    for (int i = 0; i < 50; ++i) {
      const Region region = DrawRegion({190, 77}, rng);
      const auto parts = ReadRegion(tiled, region, 1, PixelForm::kRgbx);
      const auto all = ReadRegion(jpeg, region, 1, PixelForm::kRgbx, JpegReading::kAll);
      ASSERT_TRUE(parts.ok() && all.ok()) << parts.status() << all.status();
      ASSERT_TRUE(*parts == *all);
    }
  }
}

TEST(JpegTilerTest, PixelsStay) {
  for (const JpegKind kind : kKinds) {
    for (const ImageSize size : {ImageSize{1, 1}, {33, 31}, {250, 70}}) {
      for (const bool progressive : {false, true}) {
        const std::string jpeg = MakeJpeg(size.width, size.height, {.kind = kind, .progressive = progressive});
        const std::string tiled = Tiled(jpeg);
        ImageSize before;
        ImageSize after;
        EXPECT_EQ(DecodeWhole(jpeg, 1, 3, &before), DecodeWhole(tiled, 1, 3, &after));
        EXPECT_EQ(before.width, after.width);
        EXPECT_EQ(before.height, after.height);
      }
    }
  }
}

// libjpeg makes up for coefficients that a file lacks, but not for those of a baseline file; and its warnings stay.
TEST(JpegTilerTest, FilesWithFaultsStayAsTheyAre) {
  const std::string progressive = MakeJpeg(100, 70, {.progressive = true});
  const std::string plain = MakeJpeg(100, 70);
  const std::string lacking = progressive.substr(0, progressive.rfind("\xff\xda")) + "\xff\xd9";
  const std::string odd = plain.substr(0, plain.size() / 2) + "\xff\xd9";
  for (const std::string& jpeg : {lacking, odd}) {
    const auto tiled = TileJpeg(AsBytes(jpeg), kMemory);
    ASSERT_TRUE(tiled.ok()) << tiled.status();
    EXPECT_FALSE(tiled->has_value());
  }
}

TEST(JpegTilerTest, ArithmeticCodesBecomeHuffmanCodes) {
  const std::string jpeg = MakeJpeg(100, 70, {.arithmetic = true});
  ImageSize size;
  EXPECT_EQ(DecodeWhole(jpeg, 1, 3, &size), DecodeWhole(Tiled(jpeg), 1, 3, &size));
  JpegTiles tiles;
  EXPECT_FALSE(tiles.Parse(AsBytes(jpeg)));
  EXPECT_TRUE(tiles.Parse(AsBytes(Tiled(jpeg))));
}

TEST(JpegTilerTest, DividesRowsAndKeepsTheSize) {
  for (const bool progressive : {false, true}) {
    const std::string jpeg = MakeJpeg(640, 480, {.progressive = progressive});
    const std::string tiled = Tiled(jpeg);
    JpegTiles tiles;
    ASSERT_TRUE(tiles.Parse(AsBytes(tiled)));
    EXPECT_EQ(tiles.tiles(), 10 * 30);  // 40 x 30 MCUs
    const std::string baseline = MakeJpeg(640, 480);
    EXPECT_LE(tiled.size(), baseline.size() + baseline.size() / 50);
  }
}

TEST(JpegTilerTest, IsDeterministicAndIdempotent) {
  const std::string tiled = Tiled(MakeJpeg(200, 100, {.progressive = true}));
  EXPECT_EQ(tiled, Tiled(MakeJpeg(200, 100, {.progressive = true})));
  EXPECT_EQ(tiled, Tiled(tiled));
}

TEST(JpegTilerTest, MetadataStay) {
  const std::string exif("Exif\0\0orientation", 17);
  const std::string tiled = Tiled(MakeJpeg(64, 64, {.exif = exif}));
  JpegSegments segments(AsBytes(tiled));
  bool found = false;
  while (const auto segment = segments.Next()) {
    if (segment->marker == jpeg_marker::kApp1) found = AsText(segment->payload) == exif;
  }
  EXPECT_TRUE(found);
}

TEST(JpegTilerTest, DamageIsFound) {
  const std::string jpeg = MakeJpeg(64, 64);
  for (size_t length = 0; length < jpeg.size(); length += 7) {
    EXPECT_EQ(TileJpeg(AsBytes(jpeg.substr(0, length)), kMemory).status().code(), absl::StatusCode::kDataLoss);
  }
  // The coefficients are 3 x 1,024 blocks of 128 bytes.
  const std::string large = MakeJpeg(256, 256, {.kind = JpegKind::kYcc444, .progressive = true});
  EXPECT_EQ(TileJpeg(AsBytes(large), 100'000).status().code(), absl::StatusCode::kInvalidArgument);
}

// The other tiles are not decoded: their damage changes nothing.
TEST(JpegTilesTest, OnlyTilesOfTheCropAreDecoded) {
  const std::string whole = Tiled(MakeJpeg(640, 480));
  std::string jpeg = whole;
  const Region top{.left = 300, .top = 20, .right = 500, .bottom = 200};
  const auto sound = ReadRegion(jpeg, top, 1, PixelForm::kRgbx);
  ASSERT_TRUE(sound.ok());
  // No marker is made or broken by these.
  for (size_t i = jpeg.size() * 9 / 10; i < jpeg.size() - 2; ++i) {
    const bool plain = jpeg[i] != '\xFF' && jpeg[i - 1] != '\xFF';
    if (plain) jpeg[i] = '\xFE';
  }
  const auto damaged = ReadRegion(jpeg, top, 1, PixelForm::kRgbx);
  ASSERT_TRUE(damaged.ok()) << damaged.status();
  EXPECT_TRUE(*damaged == *sound);
  EXPECT_TRUE(*ReadRegion(jpeg, top, 1, PixelForm::kRgbx, JpegReading::kAll) == *sound);
  const Region bottom{.left = 300, .top = 420, .right = 500, .bottom = 480};
  const auto shown = ReadRegion(jpeg, bottom, 1, PixelForm::kRgbx);
  ASSERT_TRUE(shown.ok()) << "wrong codes are shown as libjpeg shows them: " << shown.status();
  EXPECT_FALSE(*shown == *ReadRegion(whole, bottom, 1, PixelForm::kRgbx));
}

TEST(JpegTilesTest, SoundImagesAreReadOnce) {
  const Region part{.left = 70, .top = 17, .right = 110, .bottom = 30};
  for (const JpegReading reading : {JpegReading::kNeeded, JpegReading::kAll}) {
    const std::unique_ptr<RowReader> reader = MakeJpegReader(reading);
    const auto reads_again = [&](const std::string& jpeg) {
      const auto pixels = ReadOnce(reader.get(), jpeg, part, 1, PixelForm::kRgbx);
      EXPECT_TRUE(pixels.ok()) << pixels.status();
      return reader->MustReadAgain(pixels.status());
    };
    const std::string plain = MakeJpeg(150, 40);
    for (const JpegKind kind : kKinds) {
      EXPECT_FALSE(reads_again(MakeJpeg(150, 40, {.kind = kind})));
      EXPECT_FALSE(reads_again(MakeJpeg(150, 40, {.kind = kind, .progressive = true})));
      EXPECT_FALSE(reads_again(MakeJpeg(150, 40, {.kind = kind, .restart_interval = 3, .noise = true})));
      EXPECT_FALSE(reads_again(Tiled(MakeJpeg(150, 40, {.kind = kind}))));
      EXPECT_FALSE(reads_again(plain + "what follows the image"));
    }
    // Codes that end too early: once more, and then the verdict is final.
    const std::string odd = plain.substr(0, plain.find("\xff\xda") + 30) + "\xff\xd9";
    EXPECT_TRUE(reads_again(odd));
    EXPECT_FALSE(reads_again(odd));
    EXPECT_EQ(reader->warnings(), 1U);
    EXPECT_FALSE(reads_again(plain));
    EXPECT_EQ(reader->warnings(), 0U);
  }
}

TEST(JpegTilesTest, WhatIsCutOrOutOfOrderIsReadAsAWhole) {
  const std::string jpeg = Tiled(MakeJpeg(300, 100));
  const Region part{.left = 100, .top = 20, .right = 150, .bottom = 40};
  JpegTiles tiles;
  ASSERT_TRUE(tiles.Parse(AsBytes(jpeg)));
  for (size_t length = 0; length < jpeg.size(); length += 3) {
    const std::string cut = jpeg.substr(0, length);
    EXPECT_FALSE(tiles.Parse(AsBytes(cut))) << length;
    EXPECT_TRUE(absl::IsDataLoss(ReadRegion(cut, part, 1, PixelForm::kRgbx).status())) << length;
  }
  const size_t third = jpeg.find("\xFF\xD2");
  ASSERT_NE(third, std::string::npos);
  std::string swapped = jpeg;
  swapped[third + 1] = '\xD3';
  EXPECT_FALSE(tiles.Parse(AsBytes(swapped)));
  EXPECT_TRUE(*ReadRegion(swapped, part, 1, PixelForm::kRgbx) ==
              *ReadRegion(swapped, part, 1, PixelForm::kRgbx, JpegReading::kAll));
  std::string missing = jpeg;
  missing.erase(third, 2);
  EXPECT_FALSE(tiles.Parse(AsBytes(missing)));
  EXPECT_TRUE(*ReadRegion(missing, part, 1, PixelForm::kRgbx) ==
              *ReadRegion(missing, part, 1, PixelForm::kRgbx, JpegReading::kAll));
}

// After any change of a byte, the result is pixels of the whole file, if it decodes without error.
TEST(JpegTilesTest, ChangedBytesGiveNoOtherPixels) {
  const std::string jpeg = Tiled(MakeJpeg(150, 40, {.quality = 40}));
  const Region part{.left = 70, .top = 17, .right = 110, .bottom = 30};
  int decoded = 0;
  for (size_t i = 2; i < jpeg.size(); ++i) {
    for (const int mask : {0x01, 0x10, 0xff}) {
      std::string bad = jpeg;
      bad[i] = static_cast<char>(bad[i] ^ mask);
      const absl::StatusOr<ImageSize> size = ReadImageSize(AsBytes(bad));
      if (!size.ok() || size->width < part.right || size->height < part.bottom) continue;
      const auto all = ReadRegion(bad, part, 1, PixelForm::kRgbx, JpegReading::kAll);
      if (!all.ok()) continue;
      const auto parts = ReadRegion(bad, part, 1, PixelForm::kRgbx);
      ASSERT_TRUE(parts.ok()) << i << ": " << parts.status();
      ASSERT_TRUE(*parts == *all) << i;
      ++decoded;
    }
  }
  EXPECT_GT(decoded, 100);
}

}  // namespace
}  // namespace millrace
