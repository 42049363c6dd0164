#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

/// Returns "1 sample", "2 samples": for messages, and nouns whose plural ends with an s.
inline std::string Counted(uint64_t n, std::string_view noun) {
  std::string text = std::to_string(n);
  text.append(" ").append(noun);
  if (n != 1) text += 's';
  return text;
}

}  // namespace millrace
