#pragma once

#include <string_view>

namespace millrace {

/// Returns the last line of what a program has printed, without its end: of an error message the part that says what is
/// wrong.
inline std::string_view LastLineOf(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace millrace
