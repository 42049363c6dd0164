#include "inspect/contact_sheet.h"

#include <cairo.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "inspect/sheet_font.h"
#include "inspect/shown_text.h"

namespace millrace {

namespace {

constexpr int kGap = 12;
constexpr int kLineHeight = 14;
constexpr int kCaptionHeight = 2 * kLineHeight + 4;
constexpr int kFewestColumns = 6;
constexpr int kInset = 6;  // of text from its box
constexpr double kFontSize = 11;
constexpr size_t kMaxCaptionBytes = 512;
constexpr size_t kMaxTextBytes = 2048;

struct Colour {
  double red, green, blue;
};
constexpr Colour kWhite{1, 1, 1};
constexpr Colour kPale{0.96, 0.96, 0.96};
constexpr Colour kLine{0.75, 0.75, 0.75};
constexpr Colour kBlack{0.1, 0.1, 0.1};
constexpr Colour kGrey{0.4, 0.4, 0.4};
constexpr Colour kRed{0.8, 0.1, 0.1};

struct DestroySurface {
  void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
};
using Surface = std::unique_ptr<cairo_surface_t, DestroySurface>;

struct DestroyContext {
  void operator()(cairo_t* context) const { cairo_destroy(context); }
};
using Context = std::unique_ptr<cairo_t, DestroyContext>;

absl::Status CheckCairo(cairo_status_t status) {
  if (status == CAIRO_STATUS_SUCCESS) return absl::OkStatus();
  if (status == CAIRO_STATUS_NO_MEMORY)
    return absl::ResourceExhaustedError("drawing the contact sheet needs more memory than there is");
  return absl::InternalError(fmt::format("drawing the contact sheet failed: {}", cairo_status_to_string(status)));
}

// Draws on one surface. Errors stick to the context, and are looked at in the end.
class Pen {
 public:
  Pen(cairo_surface_t* sheet, cairo_font_face_t* font) : cairo_(cairo_create(sheet)) {
    cairo_set_font_face(cairo_.get(), font);
    cairo_set_font_size(cairo_.get(), kFontSize);
    cairo_set_line_width(cairo_.get(), 1);
    SetColour(kWhite);
    cairo_paint(cairo_.get());
  }

  absl::Status status() const { return CheckCairo(cairo_status(cairo_.get())); }

  void Picture(const SheetPlace& place, const SheetTile& tile) {
    const Surface picture(cairo_image_surface_create(CAIRO_FORMAT_RGB24, tile.width, tile.height));
    unsigned char* const rows = cairo_image_surface_get_data(picture.get());
    if (rows != nullptr) {
      const auto stride = static_cast<size_t>(cairo_image_surface_get_stride(picture.get()));
      const uint8_t* rgb = tile.pixels.data();
      for (int y = 0; y < tile.height; ++y) {
        unsigned char* row = rows + stride * static_cast<size_t>(y);
        for (int x = 0; x < tile.width; ++x, rgb += 3, row += 4) {
          const uint32_t pixel = uint32_t{rgb[0]} << 16 | uint32_t{rgb[1]} << 8 | rgb[2];
          std::memcpy(row, &pixel, sizeof pixel);
        }
      }
      cairo_surface_mark_dirty(picture.get());
    }
    cairo_set_source_surface(cairo_.get(), picture.get(), place.x, place.y);  // takes over its error, if any
    cairo_paint(cairo_.get());
  }

  void Box(const SheetPlace& place, bool crossed) {
    const double left = place.x + 0.5;  // in the middle of a pixel, so that lines are sharp
    const double top = place.y + 0.5;
    const double width = place.width - 1;
    const double height = place.height - 1;
    SetColour(kPale);
    cairo_rectangle(cairo_.get(), left, top, width, height);
    cairo_fill_preserve(cairo_.get());
    SetColour(kLine);
    cairo_stroke(cairo_.get());
    if (!crossed) return;
    SetColour(kRed);
    cairo_rectangle(cairo_.get(), left, top, width, height);
    cairo_move_to(cairo_.get(), left, top);
    cairo_line_to(cairo_.get(), left + width, top + height);
    cairo_move_to(cairo_.get(), left + width, top);
    cairo_line_to(cairo_.get(), left, top + height);
    cairo_stroke(cairo_.get());
  }

  void TextIn(const SheetPlace& box, const std::string& text) {
    const auto lines = static_cast<size_t>((box.height - 2 * kInset) / kLineHeight);
    int y = box.y + kInset;
    for (const std::string& line : WrapText(ShownText(text, kMaxTextBytes), box.width - 2 * kInset, lines, width_of_)) {
      Show(box.x + kInset, y, line, kBlack);
      y += kLineHeight;
    }
  }

  void Line(int x, int y, const std::string& text, CutEnd cut, Colour colour) {
    std::string shown = ShownText(text, kMaxCaptionBytes);
    std::replace(shown.begin(), shown.end(), '\n', ' ');
    Show(x, y, FitText(shown, kTileSide, cut, width_of_), colour);
  }

 private:
  void SetColour(Colour colour) { cairo_set_source_rgb(cairo_.get(), colour.red, colour.green, colour.blue); }

  void Show(int x, int y, const std::string& text, Colour colour) {
    SetColour(colour);
    cairo_move_to(cairo_.get(), x, y + kFontSize);  // the base line
    cairo_show_text(cairo_.get(), text.c_str());
    cairo_new_path(cairo_.get());
  }

  double WidthOf(const std::string& text) const {
    cairo_text_extents_t extents{};
    cairo_text_extents(cairo_.get(), text.c_str(), &extents);
    return extents.x_advance;
  }

  struct Measure {
    const Pen& pen;
    double operator()(const std::string& text) const { return pen.WidthOf(text); }
  };

  const Context cairo_;
  const Measure width_of_{*this};
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
SheetPlace DrawTile(Pen& pen, int left, int top, const SheetTile& tile) {
  SheetPlace place{.x = left, .y = top, .width = kTileSide, .height = kTileSide};
  if (!tile.problem.empty()) {
    pen.Box(place, true);
    pen.TextIn(place, tile.problem);
  } else if (!tile.pixels.empty()) {
    place = {.x = left + (kTileSide - tile.width) / 2,
             .y = top + (kTileSide - tile.height) / 2,
             .width = tile.width,
             .height = tile.height};
    pen.Picture(place, tile);
  } else {
    pen.Box(place, false);
    pen.TextIn(place, tile.text);
  }
  const int caption = top + kTileSide + 4;
  pen.Line(left, caption, tile.label, CutEnd::kBack, kBlack);
  pen.Line(left, caption + kLineHeight, tile.key, CutEnd::kFront, kGrey);  // names differ at their ends
  return place;
}

cairo_status_t AppendPng(void* out, const unsigned char* bytes, unsigned int length) {
  try {
    static_cast<std::string*>(out)->append(reinterpret_cast<const char*>(bytes), length);
  } catch (const std::bad_alloc&) {
    return CAIRO_STATUS_NO_MEMORY;
  }
  return CAIRO_STATUS_SUCCESS;
}

}  // namespace

uint64_t ContactSheetBytes(uint64_t tiles) {
  constexpr uint64_t kTileBytes = 3 * kTileSide * kTileSide;
  constexpr uint64_t kDrawnBytes = 4 * (kTileSide + kGap) * (kTileSide + kCaptionHeight + kGap);
  // The last row may be empty but for one tile. A PNG of noise is as large as what is drawn, and grows by doubling.
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
  const Surface surface(cairo_image_surface_create(CAIRO_FORMAT_RGB24, sheet.width, sheet.height));
  RETURN_IF_ERROR(CheckCairo(cairo_surface_status(surface.get())));
  const FontFace font = MakeSheetFont();
  if (font == nullptr) return CheckCairo(CAIRO_STATUS_NO_MEMORY);
  Pen pen(surface.get(), font.get());
  for (size_t i = 0; i < tiles.size(); ++i) {
    const int column = static_cast<int>(i) % columns;
    const int row = static_cast<int>(i) / columns;
    sheet.places.push_back(DrawTile(pen, kGap + column * right, kGap + row * down, tiles[i]));
  }
  RETURN_IF_ERROR(pen.status());
  cairo_surface_flush(surface.get());
  RETURN_IF_ERROR(CheckCairo(cairo_surface_write_to_png_stream(surface.get(), AppendPng, &sheet.png)));
  return sheet;
}

}  // namespace millrace
