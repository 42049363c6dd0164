#pragma once

#include <string>
#include <string_view>

namespace millrace {

/// Returns true if the text holds any of * ? [, and so may be a pattern.
bool HasWildcard(std::string_view text);

/// States whether '/' separates folders, which most wildcards do not cross, or is a character like any other.
enum class Slash { kSeparates, kIsOrdinary };

/// Returns true if the whole of `text` has the form of `pattern`:
///   *      any number of characters but '/'
///   **     any number of any characters; "**" + "/" at the start of a part: any number of parts, none included
///   ?      one character but '/'
///   [a-c]  one of these characters, [!a-c] or [^a-c] one but these; never '/'. Without its ']' a '[' is itself
///   \x     x itself
/// With Slash::kIsOrdinary, '*' and "**" mean the same, any number of any characters, and '?' and sets take '/', too. A
/// character is a code point of UTF-8, or a byte of what is not UTF-8. The time is of the order of the product of both
/// lengths at most. The function is pure.
bool GlobMatches(std::string_view pattern, std::string_view text, Slash slash = Slash::kSeparates);

/// Returns the text that all matching texts begin with: the pattern up to its first wildcard, without backslashes.
std::string GlobLiteralPrefix(std::string_view pattern);

}  // namespace millrace
