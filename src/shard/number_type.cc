#include "shard/number_type.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

namespace millrace {

namespace {

// NaN has no sign in decimal.
template <typename Float>
std::string Shortest(Float value) {
  if (std::isnan(value)) return "nan";
  char text[64];
  // Whole numbers are often classes: 100000, not 1e+05.
  const bool whole =
      std::trunc(value) == value && std::abs(value) < std::ldexp(Float{1}, std::numeric_limits<Float>::digits);
  const auto result = whole ? std::to_chars(text, text + sizeof text, value, std::chars_format::fixed)
                            : std::to_chars(text, text + sizeof text, value);
  return {text, result.ptr};
}

std::optional<NumberType> Make(NumberType::Kind kind, std::string_view size, bool in_bits) {
  const bool floating = kind == NumberType::Kind::kFloat;
  for (const uint8_t bytes : {1, 2, 4, 8}) {
    if (floating && bytes == 1) continue;
    if (size == fmt::format("{}", in_bits ? 8 * bytes : bytes)) return NumberType{.kind = kind, .size = bytes};
  }
  return std::nullopt;
}

}  // namespace

std::optional<NumberType> ParseNumberType(std::string_view name) {
  using Kind = NumberType::Kind;
  if (name.size() != 2) return std::nullopt;
  if (name[0] == 'i') return Make(Kind::kSigned, name.substr(1), false);
  if (name[0] == 'u') return Make(Kind::kUnsigned, name.substr(1), false);
  return name[0] == 'f' ? Make(Kind::kFloat, name.substr(1), false) : std::nullopt;
}

std::optional<NumberType> ParseNumpyName(std::string_view name) {
  using Kind = NumberType::Kind;
  if (name.starts_with("int")) return Make(Kind::kSigned, name.substr(3), true);
  if (name.starts_with("uint")) return Make(Kind::kUnsigned, name.substr(4), true);
  return name.starts_with("float") ? Make(Kind::kFloat, name.substr(5), true) : std::nullopt;
}

std::string NumpyName(NumberType type) {
  using Kind = NumberType::Kind;
  const std::string_view kind = type.kind == Kind::kSigned ? "int" : type.kind == Kind::kUnsigned ? "uint" : "float";
  return fmt::format("{}{}", kind, 8 * type.size);
}

std::string NpyDescr(NumberType type) {
  const char order = type.size == 1 ? '|' : '<';
  const char kind = type.kind == NumberType::Kind::kSigned ? 'i' : type.kind == NumberType::Kind::kUnsigned ? 'u' : 'f';
  return fmt::format("{}{}{}", order, kind, type.size);
}

float HalfToFloat(uint16_t half) {
  const uint32_t sign = (half & 0x8000U) << 16;
  const uint32_t exponent = half >> 10 & 0x1f;
  const uint32_t mantissa = half & 0x3ff;
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -value : value;
  }
  const uint32_t wide = exponent == 31 ? 0xff : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

std::string ToDecimal(float value) {
  return Shortest(value);
}

std::string ToDecimal(double value) {
  return Shortest(value);
}

std::string ToDecimal(NumberType type, const std::byte* bytes) {
  const bool is_signed = type.kind == NumberType::Kind::kSigned;
  const bool is_float = type.kind == NumberType::Kind::kFloat;
  switch (type.size) {
    case 1: {
      const auto value = LoadLe<uint8_t>(bytes);
      return is_signed ? fmt::format("{}", int{static_cast<int8_t>(value)}) : fmt::format("{}", unsigned{value});
    }
    case 2: {
      const auto value = LoadLe<uint16_t>(bytes);
      if (is_float) return Shortest(HalfToFloat(value));
      return is_signed ? fmt::format("{}", static_cast<int16_t>(value)) : fmt::format("{}", value);
    }
    case 4: {
      const auto value = LoadLe<uint32_t>(bytes);
      if (is_float) return Shortest(std::bit_cast<float>(value));
      return is_signed ? fmt::format("{}", static_cast<int32_t>(value)) : fmt::format("{}", value);
    }
    default: {
      const auto value = LoadLe<uint64_t>(bytes);
      if (is_float) return Shortest(std::bit_cast<double>(value));
      return is_signed ? fmt::format("{}", static_cast<int64_t>(value)) : fmt::format("{}", value);
    }
  }
}

}  // namespace millrace
