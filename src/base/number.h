#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace millrace {

/// Returns the number that all of `text` is, as std::from_chars reads it:
///
///     ParseNumber<uint64_t>("12")       // 12
///     ParseNumber<uint64_t>(" 12")      // nullopt, as for "", "+12", "-12", "12x" and what is too large
///     ParseNumber<uint32_t>("ff", 16)   // 255
///     ParseNumber<double>("1e3")        // 1000
///
/// `base` is for whole numbers only.
template <typename T>
std::optional<T> ParseNumber(std::string_view text, int base = 10) {
  T number{};
  std::from_chars_result result;
  if constexpr (std::is_floating_point_v<T>) {
    result = std::from_chars(text.data(), text.data() + text.size(), number);
  } else {
    result = std::from_chars(text.data(), text.data() + text.size(), number, base);
  }
  return result.ec == std::errc() && result.ptr == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

/// Parses into `number`, which stays as it is if the result is false.
template <typename T>
bool ParseNumber(std::string_view text, T* number, int base = 10) {
  const std::optional<T> parsed = ParseNumber<T>(text, base);
  if (parsed) *number = *parsed;
  return parsed.has_value();
}

/// Returns true if each character of `text` is a digit of lower-case hex, and for an empty one.
constexpr bool IsLowerHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace millrace
