#include "inspect/contact_sheet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/rng.h"
#include "decode/image.h"

namespace millrace {
namespace {

using Rgb = std::array<int, 3>;

SheetTile Picture(Rgb colour, int width, int height) {
  SheetTile tile;
  tile.width = width;
  tile.height = height;
  for (int i = 0; i < width * height; ++i) {
    for (const int value : colour) tile.pixels.push_back(static_cast<uint8_t>(value));
  }
  return tile;
}

// Provides the pixels of a sheet, by another library than the one that wrote them.
class Pixels {
 public:
  explicit Pixels(const ContactSheet& sheet) : width_(sheet.width) {
    const auto size = ReadImageSize(AsBytes(sheet.png));
    EXPECT_TRUE(size.ok()) << size.status();
    EXPECT_EQ(size->width, sheet.width);
    EXPECT_EQ(size->height, sheet.height);
    const ImageSpec spec{.height = sheet.height, .width = sheet.width};
    pixels_.resize(spec.bytes());
    const absl::Status status = ImageDecoder().Decode(AsBytes(sheet.png), spec, 0, pixels_);
    EXPECT_TRUE(status.ok()) << status;
  }
  Rgb At(int x, int y) const {
    const size_t at = (static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x)) * 3;
    return {static_cast<int>(pixels_[at]), static_cast<int>(pixels_[at + 1]), static_cast<int>(pixels_[at + 2])};
  }
  // Counts the pixels of a rectangle that are not white.
  int Ink(const SheetPlace& place) const {
    int ink = 0;
    for (int y = place.y; y < place.y + place.height; ++y) {
      for (int x = place.x; x < place.x + place.width; ++x) ink += At(x, y) == Rgb{255, 255, 255} ? 0 : 1;
    }
    return ink;
  }

 private:
  const int width_;
  std::vector<std::byte> pixels_;
};

// Returns the place of a tile's label: below its box.
SheetPlace Caption(const SheetPlace& box) {
  return {.x = box.x, .y = box.y + kTileSide, .width = kTileSide, .height = 18};
}

ContactSheet Draw(const std::vector<SheetTile>& tiles) {
  absl::StatusOr<ContactSheet> sheet = DrawContactSheet(tiles);
  EXPECT_TRUE(sheet.ok()) << sheet.status();
  return sheet.ok() ? *std::move(sheet) : ContactSheet();
}

TEST(ContactSheet, EveryPictureIsWhereItSays) {
  std::vector<SheetTile> tiles;
  for (int i = 0; i < 20; ++i) tiles.push_back(Picture({10 * i, 255 - 7 * i, i}, i == 3 ? 1 : 160, i == 4 ? 7 : 160));
  const ContactSheet sheet = Draw(tiles);
  const Pixels pixels(sheet);
  ASSERT_EQ(sheet.places.size(), tiles.size());
  for (int i = 0; i < 20; ++i) {
    const SheetPlace& place = sheet.places[static_cast<size_t>(i)];
    const Rgb colour = {10 * i, 255 - 7 * i, i};
    EXPECT_EQ(place.width, i == 3 ? 1 : 160);
    EXPECT_EQ(place.height, i == 4 ? 7 : 160);
    EXPECT_EQ(pixels.At(place.x, place.y), colour) << i;
    EXPECT_EQ(pixels.At(place.x + place.width - 1, place.y + place.height - 1), colour) << i;
    EXPECT_NE(pixels.At(place.x - 1, place.y), colour) << i;
    EXPECT_NE(pixels.At(place.x + place.width, place.y), colour) << i;
  }
}

TEST(ContactSheet, RowsOfSixAndMore) {
  for (const auto& [tiles, columns] :
       std::vector<std::pair<size_t, int>>{{1, 1}, {5, 5}, {24, 6}, {37, 7}, {100, 10}}) {
    const ContactSheet sheet = Draw(std::vector<SheetTile>(tiles));
    const int rows = (static_cast<int>(tiles) + columns - 1) / columns;
    EXPECT_EQ(sheet.width, 12 + columns * 172) << tiles;
    EXPECT_EQ(sheet.height, 12 + rows * 204) << tiles;
  }
}

TEST(ContactSheet, LabelsAreDrawn) {
  std::vector<SheetTile> tiles(3, Picture({0, 0, 0}, 160, 160));
  tiles[0].label = "i";
  tiles[1].label = "mmmmmmm";
  const ContactSheet sheet = Draw(tiles);
  const Pixels pixels(sheet);
  EXPECT_GT(pixels.Ink(Caption(sheet.places[0])), 3);
  EXPECT_GT(pixels.Ink(Caption(sheet.places[1])), 3 * pixels.Ink(Caption(sheet.places[0])));
  EXPECT_EQ(pixels.Ink(Caption(sheet.places[2])), 0);
}

TEST(ContactSheet, LongNamesStayInTheirColumn) {
  std::vector<SheetTile> tiles(2, Picture({0, 0, 0}, 160, 160));
  tiles[0].label = tiles[0].key = std::string(5000, 'W');
  const ContactSheet sheet = Draw(tiles);
  const Pixels pixels(sheet);
  EXPECT_GT(pixels.Ink(Caption(sheet.places[0])), 100);
  EXPECT_EQ(pixels.Ink({.x = sheet.places[0].x + 162, .y = 0, .width = 9, .height = sheet.height}), 0);
}

TEST(ContactSheet, TextAndProblemsFillBoxes) {
  std::vector<SheetTile> tiles(3);
  tiles[1].text = "txt: a caption\ncls: 7";
  tiles[2].problem = "field 'jpg': the image is empty (0 bytes)";
  const ContactSheet sheet = Draw(tiles);
  const Pixels pixels(sheet);
  const auto red = [&](const SheetPlace& place) {
    const Rgb middle = pixels.At(place.x + 120, place.y + 120);  // on a diagonal, below the text
    return middle[0] > middle[1] + 50;
  };
  EXPECT_FALSE(red(sheet.places[0]));
  EXPECT_FALSE(red(sheet.places[1]));
  EXPECT_TRUE(red(sheet.places[2]));
  EXPECT_NE(Draw({tiles[0]}).png, Draw({tiles[1]}).png);
}

TEST(ContactSheet, AnyBytesCanBeDrawn) {
  Rng rng(HashKey(5, {1}));
  std::vector<SheetTile> tiles(40);
  for (SheetTile& tile : tiles) {
    for (std::string* text : {&tile.label, &tile.key, &tile.text}) {
      text->resize(rng.Below(400));
      for (char& c : *text) c = static_cast<char>(rng.Next());
    }
  }
  tiles[0].label = "\xef\xbf\xbf\xef\xb7\x90";  // UTF-8, but no characters
  tiles[1].problem = tiles[2].text;
  EXPECT_EQ(Draw(tiles).places.size(), 40u);
  EXPECT_EQ(Draw(tiles).png, Draw(tiles).png);
}

TEST(ContactSheet, RefusesWhatIsNoPicture) {
  SheetTile tile = Picture({1, 2, 3}, 10, 10);
  tile.width = 11;
  EXPECT_EQ(DrawContactSheet({&tile, 1}).status().code(), absl::StatusCode::kInvalidArgument);
  tile = Picture({1, 2, 3}, kTileSide + 1, 1);
  EXPECT_EQ(DrawContactSheet({&tile, 1}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DrawContactSheet({}).status().code(), absl::StatusCode::kInvalidArgument);
  const std::vector<SheetTile> many(kMaxTiles + 1);
  EXPECT_EQ(DrawContactSheet(many).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ContactSheet, TakesNoMoreMemoryThanItSays) {
  Rng rng(1);
  for (const size_t count : {size_t{1}, size_t{7}, size_t{50}}) {
    std::vector<SheetTile> tiles(count);
    for (SheetTile& tile : tiles) {  // noise, which no PNG makes smaller
      tile.width = tile.height = kTileSide;
      tile.pixels.resize(size_t{3} * kTileSide * kTileSide);
      for (uint8_t& byte : tile.pixels) byte = static_cast<uint8_t>(rng.Next());
    }
    const auto sheet = DrawContactSheet(tiles);
    ASSERT_TRUE(sheet.ok()) << sheet.status();
    const uint64_t drawn = uint64_t{4} * static_cast<uint64_t>(sheet->width) * static_cast<uint64_t>(sheet->height);
    EXPECT_LE(count * tiles[0].pixels.size() + drawn + sheet->png.capacity(), ContactSheetBytes(count)) << count;
  }
}

}  // namespace
}  // namespace millrace
