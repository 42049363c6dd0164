#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/functional/function_ref.h"

struct stbtt_fontinfo;

// Private to src/inspect.

namespace millrace {

/// The font of contact sheets, DejaVu Sans, which is part of the program: sheets look the same on every machine, and
/// machines need no fonts. Pure.
///
///   const SheetFont font(11);
///   font.Draw("cat", [&](int x, int y, uint8_t coverage) { ... });
class SheetFont {
 public:
  /// `size` is that of an em, in pixels.
  explicit SheetFont(int size);
  ~SheetFont();

  /// The width of UTF-8 text in pixels.
  int WidthOf(std::string_view text) const;

  /// Calls `ink` for pixels that UTF-8 text covers, in part or, if `coverage` is 255, in full. Text begins at 0 / 0 on
  /// its base line; y grows downwards. Characters that the font lacks are boxes.
  void Draw(std::string_view text, absl::FunctionRef<void(int x, int y, uint8_t coverage)> ink) const;

 private:
  int AdvanceOf(int glyph) const;

  const std::unique_ptr<stbtt_fontinfo> font_;
  float scale_ = 0;  // pixels for each unit of the font
};

}  // namespace millrace
