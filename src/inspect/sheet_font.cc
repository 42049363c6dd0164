#include "inspect/sheet_font.h"

#include <cairo-ft.h>
#include <ft2build.h>
#include FT_FREETYPE_H
#ifdef MILLRACE_WHEEL
#include <sys/random.h>

#include <algorithm>
#include <cstdlib>

// With cairo's archive come fontconfig and its parser of XML, expat. They never run, but expat calls this function of
// glibc 2.36. With this one in its place, the wheel runs with glibc 2.35 (Ubuntu 22.04).
extern "C" void arc4random_buf(void* out, size_t length) noexcept {
  constexpr size_t kMost = 256;  // of getentropy
  for (auto* at = static_cast<unsigned char*>(out); length > 0;) {
    const size_t part = std::min(length, kMost);
    if (getentropy(at, part) != 0) std::abort();
    at += part;
    length -= part;
  }
}
#endif

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

struct Font {
  FT_Library library = nullptr;
  FT_Face face = nullptr;
  ~Font() {
    if (library != nullptr) FT_Done_FreeType(library);  // with its faces
  }
};

const cairo_user_data_key_t kFontKey{};

}  // namespace

FontFace MakeSheetFont() {
  auto font = std::make_unique<Font>();
  if (FT_Init_FreeType(&font->library) != 0) return nullptr;
  const auto bytes = static_cast<FT_Long>(millrace_sheet_font_end - millrace_sheet_font);
  if (FT_New_Memory_Face(font->library, millrace_sheet_font, bytes, 0, &font->face) != 0) return nullptr;
  FontFace face(cairo_ft_font_face_create_for_ft_face(font->face, 0));
  // cairo keeps fonts in a cache of its own, beyond the life of what was drawn with them: it destroys the font.
  const auto destroy = [](void* kept) { delete static_cast<Font*>(kept); };
  if (cairo_font_face_set_user_data(face.get(), &kFontKey, font.get(), destroy) != CAIRO_STATUS_SUCCESS) return nullptr;
  (void)font.release();
  return face;
}

}  // namespace millrace
