#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace millrace {

/// Returns the length of the UTF-8 sequence at the start of `text`, which is not empty; 0 if it is not valid (overlong,
/// surrogate, beyond U+10FFFF, cut short).
size_t Utf8SequenceLength(std::string_view text);

/// Returns the offset of the first byte that belongs to no UTF-8 sequence; `text.size()` if all do.
size_t FirstNotUtf8(std::string_view text);

/// Returns the text after its byte order mark, which programs on Windows write; all of it if there is none.
constexpr std::string_view WithoutByteOrderMark(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

/// Returns the text with "
/// ", "\t", "\r", "\x1b" or "\u009b" for each control character: safe for a terminal, which would obey them, and one
/// line. Other bytes stay, also those that are not UTF-8.
std::string WithEscapedControls(std::string_view text);

}  // namespace millrace
