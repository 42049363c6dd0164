#include "inspect/sheet_font.h"

#define STBTT_STATIC
#define STB_TRUETYPE_IMPLEMENTATION
#include <stb/stb_truetype.h>

#include <cmath>
#include <vector>

#include "base/utf8.h"

// The file as it is, between two symbols.
asm(".section .rodata\n"
    ".balign 16\n"
    "millrace_sheet_font: .incbin \"" MILLRACE_SHEET_FONT
    "\"\n"
    "millrace_sheet_font_end: .byte 0\n"
    ".previous\n");
extern "C" {
extern const unsigned char millrace_sheet_font[];      // NOLINT: an assembler's name
extern const unsigned char millrace_sheet_font_end[];  // NOLINT
}

namespace millrace {

namespace {

// Takes the first character off UTF-8 text, and returns its code point.
int TakeCharacter(std::string_view* text) {
  const size_t length = Utf8SequenceLength(*text);
  int point = static_cast<uint8_t>(text->front()) & (length == 1 ? 0x7f : 0x7f >> length);
  for (const char c : text->substr(1, length - 1)) point = point << 6 | (static_cast<uint8_t>(c) & 0x3f);
  text->remove_prefix(length);
  return point;
}

}  // namespace

SheetFont::SheetFont(int size) : font_(std::make_unique<stbtt_fontinfo>()) {
  stbtt_InitFont(font_.get(), millrace_sheet_font, 0);
  scale_ = stbtt_ScaleForMappingEmToPixels(font_.get(), static_cast<float>(size));
}

SheetFont::~SheetFont() = default;

int SheetFont::AdvanceOf(int glyph) const {
  int advance = 0;
  stbtt_GetGlyphHMetrics(font_.get(), glyph, &advance, nullptr);
  return static_cast<int>(std::lround(static_cast<float>(advance) * scale_));
}

int SheetFont::WidthOf(std::string_view text) const {
  int width = 0;
  while (!text.empty()) width += AdvanceOf(stbtt_FindGlyphIndex(font_.get(), TakeCharacter(&text)));
  return width;
}

void SheetFont::Draw(std::string_view text, absl::FunctionRef<void(int x, int y, uint8_t coverage)> ink) const {
  std::vector<uint8_t> coverage;
  for (int pen = 0; !text.empty();) {
    const int glyph = stbtt_FindGlyphIndex(font_.get(), TakeCharacter(&text));
    int left = 0, top = 0, right = 0, bottom = 0;
    stbtt_GetGlyphBitmapBox(font_.get(), glyph, scale_, scale_, &left, &top, &right, &bottom);
    const int width = right - left;
    coverage.assign(static_cast<size_t>(width) * static_cast<size_t>(bottom - top), 0);
    stbtt_MakeGlyphBitmap(font_.get(), coverage.data(), width, bottom - top, width, scale_, scale_, glyph);
    const uint8_t* at = coverage.data();
    for (int y = top; y < bottom; ++y) {
      for (int x = left; x < right; ++x) ink(pen + x, y, *at++);
    }
    pen += AdvanceOf(glyph);
  }
}

}  // namespace millrace
