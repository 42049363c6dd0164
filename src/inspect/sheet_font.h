#pragma once

#include <cstdint>
#include <string_view>

#include "absl/functional/function_ref.h"

// Contact sheets use the font DejaVu Sans with 11 pixels an em. It is part of the program: sheets look the same on
// every machine, and machines need no fonts. Thread-safe. Private to src/inspect.

namespace millrace {

/// Returns the width of UTF-8 text in pixels.
int SheetTextWidth(std::string_view text);

/// Calls `ink` for pixels that UTF-8 text covers, in part or, if `coverage` is 255, in full. Text begins at 0 / 0 on
/// its base line; y grows downwards. Characters that the font lacks are boxes.
void DrawSheetText(std::string_view text, absl::FunctionRef<void(int x, int y, uint8_t coverage)> ink);

}  // namespace millrace
