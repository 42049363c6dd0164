#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"

/// Prepares arbitrary text for drawing. Pure.

namespace millrace {

/// Returns UTF-8 without control characters but newlines: invalid bytes become U+FFFD, other control characters spaces.
/// Takes at most `most_bytes` bytes of the text; a longer text gets an ellipsis.
std::string ShownText(std::string_view bytes, size_t most_bytes);

/// Returns true if bytes, or the first of them when `cut`, look like text: UTF-8 without control characters except
/// white space.
bool LooksLikeText(std::string_view bytes, bool cut);

/// Returns the width of a text as it would be drawn; it grows with the text.
using TextWidth = absl::FunctionRef<double(const std::string&)>;

/// Names the end of a text that is cut off if it does not fit.
enum class CutEnd { kFront, kBack };

/// Returns as much of the UTF-8 text as fits into `width`, with an ellipsis for the rest.
std::string FitText(const std::string& text, double width, CutEnd cut, TextWidth width_of);

/// Breaks UTF-8 text into at most `most_lines` lines that fit: at its newlines, at spaces, and within words that are
/// too long. An ellipsis in the last line stands for the rest.
std::vector<std::string> WrapText(std::string_view text, double width, size_t most_lines, TextWidth width_of);

}  // namespace millrace
