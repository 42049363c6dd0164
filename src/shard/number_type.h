#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace millrace {

/// Describes a type of number as it is stored, little-endian.
struct NumberType {
  enum class Kind : uint8_t { kSigned, kUnsigned, kFloat };
  Kind kind = Kind::kSigned;
  uint8_t size = 0;  // bytes

  friend bool operator==(const NumberType&, const NumberType&) = default;
};

/// Parses the short name: "i1" "i2" "i4" "i8" "u1" "u2" "u4" "u8" "f2" "f4" "f8".
std::optional<NumberType> ParseNumberType(std::string_view name);

/// Parses NumPy's long name: "int8", "uint64", "float16" and so on.
std::optional<NumberType> ParseNumpyName(std::string_view name);

std::string NumpyName(NumberType type);

/// Returns the name in .npy files: "<i4", "|u1".
std::string NpyDescr(NumberType type);

/// Returns the number at `bytes`, which has type.size bytes, in decimal, as short as it can be read back.
std::string ToDecimal(NumberType type, const std::byte* bytes);
std::string ToDecimal(float value);
std::string ToDecimal(double value);

/// Converts a half-precision number.
float HalfToFloat(uint16_t half);

}  // namespace millrace
