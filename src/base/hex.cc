#include "base/hex.h"

#include <array>

namespace millrace {

namespace {

using Pairs = std::array<std::array<char, 2>, 256>;

constexpr Pairs MakePairs() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  Pairs pairs{};
  for (size_t byte = 0; byte < pairs.size(); ++byte) pairs[byte] = {kDigits[byte >> 4], kDigits[byte & 15]};
  return pairs;
}
constexpr Pairs kPairs = MakePairs();

}  // namespace

void AppendHex(std::string* to, std::span<const uint8_t> bytes) {
  const size_t before = to->size();
  to->resize(before + 2 * bytes.size());
  char* at = to->data() + before;
  for (const uint8_t byte : bytes) {
    *at++ = kPairs[byte][0];
    *at++ = kPairs[byte][1];
  }
}

std::string HexEncode(std::span<const uint8_t> bytes) {
  std::string hex;
  AppendHex(&hex, bytes);
  return hex;
}

std::optional<std::string> HexDecode(std::string_view hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = HexValue(hex[i]);
    const int low = HexValue(hex[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(high * 16 + low));
  }
  return bytes;
}

}  // namespace millrace
