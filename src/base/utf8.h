#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace millrace {

/// Length of the UTF-8 sequence at the start of `text`, which is not empty; 0 if it is not valid (overlong, surrogate,
/// beyond U+10FFFF, cut short).
size_t Utf8SequenceLength(std::string_view text);

/// The offset of the first byte that belongs to no UTF-8 sequence; `text.size()` if all do.
size_t FirstNotUtf8(std::string_view text);

/// The text with '?' for each control character, also those above ASCII: safe for a terminal, which would obey them.
std::string WithoutControls(std::string_view text);

}  // namespace millrace
