#include "inspect/sheet_font.h"

#define STBTT_STATIC
#define STB_TRUETYPE_IMPLEMENTATION
#include <stb/stb_truetype.h>

#include <cmath>
#include <vector>

#include "base/utf8.h"

// This is the file as it is.
asm(".section .rodata\n"
    ".balign 16\n"
    "millrace_sheet_font: .incbin \"" MILLRACE_SHEET_FONT
    "\"\n"
    ".previous\n");
extern "C" const unsigned char millrace_sheet_font[];  // NOLINT: an assembler's name

namespace millrace {

namespace {

constexpr float kFontSize = 11;

struct Font {
  stbtt_fontinfo info{};
  float scale = 0;  // pixels for each unit of the font

  Font() {
    stbtt_InitFont(&info, millrace_sheet_font, 0);
    scale = stbtt_ScaleForMappingEmToPixels(&info, kFontSize);
  }
};

const Font& TheFont() {
  static const Font font;
  return font;
}

// Takes the first character off UTF-8 text, and returns its code point.
int TakeCharacter(std::string_view* text) {
  const size_t length = Utf8SequenceLength(*text);
  int point = static_cast<uint8_t>(text->front()) & (length == 1 ? 0x7f : 0x7f >> length);
  for (const char c : text->substr(1, length - 1)) point = point << 6 | (static_cast<uint8_t>(c) & 0x3f);
  text->remove_prefix(length);
  return point;
}

int AdvanceOf(int glyph) {
  int advance = 0;
  stbtt_GetGlyphHMetrics(&TheFont().info, glyph, &advance, nullptr);
  return static_cast<int>(std::lround(static_cast<float>(advance) * TheFont().scale));
}

}  // namespace

int SheetTextWidth(std::string_view text) {
  int width = 0;
  while (!text.empty()) width += AdvanceOf(stbtt_FindGlyphIndex(&TheFont().info, TakeCharacter(&text)));
  return width;
}

void DrawSheetText(std::string_view text, absl::FunctionRef<void(int x, int y, uint8_t coverage)> ink) {
  const auto& [font, scale] = TheFont();
  std::vector<uint8_t> coverage;
  for (int pen = 0; !text.empty();) {
    const int glyph = stbtt_FindGlyphIndex(&font, TakeCharacter(&text));
    int left = 0, top = 0, right = 0, bottom = 0;
    stbtt_GetGlyphBitmapBox(&font, glyph, scale, scale, &left, &top, &right, &bottom);
    const int width = right - left;
    coverage.assign(static_cast<size_t>(width) * static_cast<size_t>(bottom - top), 0);
    stbtt_MakeGlyphBitmap(&font, coverage.data(), width, bottom - top, width, scale, scale, glyph);
    const uint8_t* at = coverage.data();
    for (int y = top; y < bottom; ++y) {
      for (int x = left; x < right; ++x) ink(pen + x, y, *at++);
    }
    pen += AdvanceOf(glyph);
  }
}

}  // namespace millrace
