#include "inspect/contact_sheet.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "decode/png_writer.h"
#include "inspect/sheet_font.h"
#include "inspect/shown_text.h"

namespace millrace {

namespace {

constexpr int kGap = 12;
constexpr int kLineHeight = 14;
constexpr int kCaptionHeight = 2 * kLineHeight + 4;
constexpr int kFewestColumns = 6;
constexpr int kInset = 6;      // of text from its box
constexpr int kBaseLine = 11;  // of text below the top of its line
constexpr size_t kMaxCaptionBytes = 512;
constexpr size_t kMaxTextBytes = 2048;

struct Colour {
  uint8_t red, green, blue;
};
constexpr Colour kPale{245, 245, 245};
constexpr Colour kLine{191, 191, 191};
constexpr Colour kBlack{26, 26, 26};
constexpr Colour kGrey{102, 102, 102};
constexpr Colour kRed{204, 26, 26};

// A diagonal line one pixel wide covers this share of a pixel, of 255: of pixels on the line and right beside it.
constexpr uint8_t kOnDiagonal = 233;
constexpr uint8_t kBesideDiagonal = 64;

// Represents the pixels of a sheet as RGBX, white at first.
class Canvas {
 public:
  Canvas(int width, int height)
      : width_(width), height_(height), pixels_(4 * static_cast<size_t>(width) * static_cast<size_t>(height), 255) {}

  void Picture(const SheetPlace& place, const SheetTile& tile) {
    const uint8_t* rgb = tile.pixels.data();
    for (int y = place.y; y < place.y + tile.height; ++y) {
      for (int x = place.x; x < place.x + tile.width; ++x, rgb += 3) std::copy_n(rgb, 3, At(x, y));
    }
  }

  void Box(const SheetPlace& place, bool crossed) {
    constexpr int kLast = kTileSide - 1;
    const Colour line = crossed ? kRed : kLine;
    for (int y = 0; y <= kLast; ++y) {
      for (int x = 0; x <= kLast; ++x) {
        const bool edge = x == 0 || y == 0 || x == kLast || y == kLast;
        Blend(place.x + x, place.y + y, edge ? line : kPale, 255);
        if (edge || !crossed) continue;
        for (const int off : {std::abs(x - y), std::abs(kLast - x - y)}) {
          if (off <= 1) Blend(place.x + x, place.y + y, line, off == 0 ? kOnDiagonal : kBesideDiagonal);
        }
      }
    }
  }

  void TextIn(const SheetPlace& box, const std::string& text) {
    const auto lines = static_cast<size_t>((box.height - 2 * kInset) / kLineHeight);
    int y = box.y + kInset;
    for (const std::string& line :
         WrapText(ShownText(text, kMaxTextBytes), box.width - 2 * kInset, lines, SheetTextWidth)) {
      Show(box.x + kInset, y, line, kBlack);
      y += kLineHeight;
    }
  }

  void Line(int x, int y, const std::string& text, CutEnd cut, Colour colour) {
    std::string shown = ShownText(text, kMaxCaptionBytes);
    std::replace(shown.begin(), shown.end(), '\n', ' ');
    Show(x, y, FitText(shown, kTileSide, cut, SheetTextWidth), colour);
  }

  absl::StatusOr<std::string> ToPng() {
    PngWriter writer;
    RETURN_IF_ERROR(writer.Start(width_, height_));
    for (int y = 0; y < height_; ++y) RETURN_IF_ERROR(writer.Put(At(0, y)));
    return writer.Finish();
  }

 private:
  uint8_t* At(int x, int y) {
    return &pixels_[4 * (static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x))];
  }

  void Blend(int x, int y, Colour colour, uint8_t coverage) {
    if (x < 0 || x >= width_ || y < 0 || y >= height_) return;
    uint8_t* pixel = At(x, y);
    for (const int value : {colour.red, colour.green, colour.blue}) {
      *pixel = static_cast<uint8_t>((*pixel * (255 - coverage) + value * coverage + 127) / 255);
      ++pixel;
    }
  }

  void Show(int x, int y, const std::string& text, Colour colour) {
    DrawSheetText(
        text, [&](int right, int down, uint8_t coverage) { Blend(x + right, y + kBaseLine + down, colour, coverage); });
  }

  const int width_;
  const int height_;
  std::vector<uint8_t> pixels_;
};

absl::Status Check(const SheetTile& tile) {
  const bool right = tile.width >= 1 && tile.width <= kTileSide && tile.height >= 1 && tile.height <= kTileSide &&
                     tile.pixels.size() == static_cast<size_t>(tile.width) * static_cast<size_t>(tile.height) * 3;
  if (tile.pixels.empty() || right) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("a picture of {} x {} pixels with {} bytes", tile.width, tile.height, tile.pixels.size()));
}

int ColumnsOf(size_t tiles) {
  int columns = kFewestColumns;
  while (static_cast<size_t>(columns) * static_cast<size_t>(columns) < tiles) ++columns;
  return static_cast<int>(std::min<size_t>(tiles, static_cast<size_t>(columns)));
}

// Small pictures are in the middle of their box.
SheetPlace DrawTile(Canvas& canvas, int left, int top, const SheetTile& tile) {
  SheetPlace place{.x = left, .y = top, .width = kTileSide, .height = kTileSide};
  if (!tile.problem.empty()) {
    canvas.Box(place, true);
    canvas.TextIn(place, tile.problem);
  } else if (!tile.pixels.empty()) {
    place = {.x = left + (kTileSide - tile.width) / 2,
             .y = top + (kTileSide - tile.height) / 2,
             .width = tile.width,
             .height = tile.height};
    canvas.Picture(place, tile);
  } else {
    canvas.Box(place, false);
    canvas.TextIn(place, tile.text);
  }
  const int caption = top + kTileSide + 4;
  canvas.Line(left, caption, tile.label, CutEnd::kBack, kBlack);
  canvas.Line(left, caption + kLineHeight, tile.key, CutEnd::kFront, kGrey);  // names differ at their ends
  return place;
}

}  // namespace

uint64_t ContactSheetBytes(uint64_t tiles) {
  constexpr uint64_t kTileBytes = 3 * kTileSide * kTileSide;
  constexpr uint64_t kDrawnBytes = 4 * (kTileSide + kGap) * (kTileSide + kCaptionHeight + kGap);
  // The last row may be empty but for one tile. A PNG of noise is as large as what is drawn, and grows by doubling and
  // is copied.
  const uint64_t places = tiles + static_cast<uint64_t>(ColumnsOf(tiles));
  return tiles * kTileBytes + 3 * places * kDrawnBytes;
}

absl::StatusOr<ContactSheet> DrawContactSheet(std::span<const SheetTile> tiles) {
  if (tiles.empty() || tiles.size() > kMaxTiles)
    return absl::InvalidArgumentError(fmt::format("a contact sheet has 1 to {} samples", kMaxTiles));
  for (const SheetTile& tile : tiles) RETURN_IF_ERROR(Check(tile));
  const int columns = ColumnsOf(tiles.size());
  const int rows = (static_cast<int>(tiles.size()) + columns - 1) / columns;
  const int right = kTileSide + kGap;
  const int down = kTileSide + kCaptionHeight + kGap;
  ContactSheet sheet;
  sheet.width = kGap + columns * right;
  sheet.height = kGap + rows * down;
  Canvas canvas(sheet.width, sheet.height);
  for (size_t i = 0; i < tiles.size(); ++i) {
    const int column = static_cast<int>(i) % columns;
    const int row = static_cast<int>(i) / columns;
    sheet.places.push_back(DrawTile(canvas, kGap + column * right, kGap + row * down, tiles[i]));
  }
  ASSIGN_OR_RETURN(sheet.png, canvas.ToPng());
  return sheet;
}

}  // namespace millrace
