#pragma once

#include <cairo.h>

#include <memory>

// Private to src/inspect.

namespace millrace {

struct DestroyFontFace {
  void operator()(cairo_font_face_t* face) const { cairo_font_face_destroy(face); }
};
using FontFace = std::unique_ptr<cairo_font_face_t, DestroyFontFace>;

/// The font of contact sheets, DejaVu Sans. It is part of the program: sheets look the same on every machine, and
/// machines need no fonts. nullptr if there is too little memory.
FontFace MakeSheetFont();

}  // namespace millrace
