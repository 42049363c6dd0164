#include "shard/tar_key.h"

#include <algorithm>

namespace millrace {

namespace {

constexpr std::string_view kDot = "2E";
constexpr std::string_view kUnderscores = "5F_";  // at the beginning of a key

// Returns how many times "25" precedes `what` at the beginning of the text after a "%"; npos if `what` is not there.
size_t EscapesOf(std::string_view rest, std::string_view what) {
  size_t times = 0;
  for (; rest.starts_with("25"); rest.remove_prefix(2)) ++times;
  return rest.starts_with(what) ? times : std::string_view::npos;
}

}  // namespace

std::string EscapeTarKey(std::string_view key) {
  std::string escaped;
  size_t begin = 1;  // of what follows an escape
  if (key.starts_with("__")) {
    escaped = "%5F";
  } else if (key.starts_with('%') && EscapesOf(key.substr(1), kUnderscores) != std::string_view::npos) {
    escaped = "%25";
  } else {
    begin = 0;
  }
  const size_t base = std::max(begin, key.rfind('/') + 1);
  escaped += key.substr(begin, base - begin);
  for (size_t i = base; i < key.size(); ++i) {
    if (key[i] == '.') {
      escaped += "%2E";
      continue;
    }
    escaped += key[i];
    if (key[i] == '%' && EscapesOf(key.substr(i + 1), kDot) != std::string_view::npos) escaped += "25";
  }
  return escaped;
}

std::string UnescapeTarKey(std::string_view escaped) {
  std::string key;
  size_t begin = 0;
  if (escaped.starts_with('%')) {
    const size_t times = EscapesOf(escaped.substr(1), kUnderscores);
    if (times != std::string_view::npos) {
      key = times == 0 ? '_' : '%';
      begin = 3;
    }
  }
  const size_t base = std::max(begin, escaped.rfind('/') + 1);
  key += escaped.substr(begin, base - begin);
  for (size_t i = base; i < escaped.size(); ++i) {
    const size_t times = escaped[i] == '%' ? EscapesOf(escaped.substr(i + 1), kDot) : std::string_view::npos;
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
