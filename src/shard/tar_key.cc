#include "shard/tar_key.h"

namespace millrace {

namespace {

constexpr std::string_view kEscapedDot = "%2E";

// How many times "25" stands before "2E" at the beginning of the text behind a "%"; npos if there is no "2E".
size_t EscapesOf(std::string_view rest) {
  size_t times = 0;
  for (; rest.starts_with("25"); rest.remove_prefix(2)) ++times;
  return rest.starts_with("2E") ? times : std::string_view::npos;
}

}  // namespace

std::string EscapeTarKey(std::string_view key) {
  const size_t base = key.rfind('/') + 1;
  std::string escaped(key.substr(0, base));
  for (size_t i = base; i < key.size(); ++i) {
    if (key[i] == '.') {
      escaped += kEscapedDot;
      continue;
    }
    escaped += key[i];
    if (key[i] == '%' && EscapesOf(key.substr(i + 1)) != std::string_view::npos) escaped += "25";
  }
  return escaped;
}

std::string UnescapeTarKey(std::string_view escaped) {
  const size_t base = escaped.rfind('/') + 1;
  std::string key(escaped.substr(0, base));
  for (size_t i = base; i < escaped.size(); ++i) {
    const size_t times = escaped[i] == '%' ? EscapesOf(escaped.substr(i + 1)) : std::string_view::npos;
    if (times == 0) {
      key += '.';
    } else {
      key += escaped[i];
    }
    if (times != std::string_view::npos) i += 2;
  }
  return key;
}

}  // namespace millrace
