#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

/// Draws samples side by side, as photographers lay out their negatives. Pure.

namespace millrace {

/// The picture of a sample fits into a box of this side.
inline constexpr int kTileSide = 160;
/// A sheet with more tiles would open in no viewer.
inline constexpr uint64_t kMaxTiles = 1'000;

struct SheetTile {
  // One of these is shown, the first that is not empty.
  std::string problem;          // in a crossed box
  std::vector<uint8_t> pixels;  // RGB, row by row: width * height * 3 bytes, sides of 1 to kTileSide
  std::string text;             // in a box, in several lines
  int width = 0;                // of the pixels
  int height = 0;

  // These texts are below it, one line each. They may have any bytes, as the texts above.
  std::string label;
  std::string key;
};

/// Is the place of the picture or the box of a tile, in pixels from the top left corner of the sheet.
struct SheetPlace {
  int x = 0;
  int y = 0;
  int width = 0;
  int height = 0;
};

struct ContactSheet {
  std::string png;
  int width = 0;
  int height = 0;
  std::vector<SheetPlace> places;  // of the tiles, in their order: row by row, six or more a row
};

/// Returns an upper bound of the memory for this many tiles and their sheet, without long texts.
uint64_t ContactSheetBytes(uint64_t tiles);

/// Draws 1 to kMaxTiles tiles. The same tiles make the same sheet. ResourceExhausted if the PNG needs more memory than
/// there is.
absl::StatusOr<ContactSheet> DrawContactSheet(std::span<const SheetTile> tiles);

}  // namespace millrace
