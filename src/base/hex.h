#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace millrace {

/// Returns the value of a hex digit of either case; -1 for other characters.
constexpr int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Appends the lower-case hex of any contiguous bytes.
void AppendHex(std::string* to, std::span<const uint8_t> bytes);
/// Returns it.
std::string HexEncode(std::span<const uint8_t> bytes);

/// Returns the bytes that hex of either case stands for; nullopt if a character is not a digit or half a byte is left.
std::optional<std::string> HexDecode(std::string_view hex);

}  // namespace millrace
