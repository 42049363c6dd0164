#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace millrace {

/// Length of the UTF-8 sequence at the start of `text`, which is not empty; 0 when it is none (overlong, surrogate,
/// beyond U+10FFFF, cut short).
size_t Utf8SequenceLength(std::string_view text);

/// Where the first byte lies that belongs to no UTF-8 sequence; `text.size()` when all do.
size_t FirstNotUtf8(std::string_view text);

/// The text with '?' for each control character, also those above ASCII: fit for a terminal, which would obey them.
std::string WithoutControls(std::string_view text);

}  // namespace millrace
