#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace millrace {

/// Returns a clause for a message about two names that should be equal. The characters of a name may be stored in two
/// ways, of which macOS writes the other one. Returns "" if both are ASCII.
inline std::string_view OnUnicodeForms(std::string_view name, std::string_view other) {
  const auto is_ascii = [](std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  };
  if (is_ascii(name) && is_ascii(other)) return {};
  return "; if names look alike, one may be in Unicode's form NFD, as macOS writes it: bring both to NFC (in Python "
         "unicodedata.normalize(\"NFC\", name))";
}

}  // namespace millrace
