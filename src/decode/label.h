#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/bytes.h"
#include "base/status.h"

namespace millrace {

/// How the bytes of a label field are read.
struct LabelSpec {
  enum class Kind : uint8_t {
    kInt,   // an ASCII decimal integer, white space around it allowed
    kText,  // UTF-8, as it stands
    kJson,  // a number or string inside a JSON document
  };
  Kind kind = Kind::kInt;
  std::string path;  // kJson only: names joined by dots, `annotation.label`; a number picks an item of an array

  /// "int", "text" or "json:annotation.label". InvalidArgument otherwise.
  static absl::StatusOr<LabelSpec> Parse(std::string_view text);
};

using LabelValue = std::variant<int64_t, double, std::string>;

/// The largest label field that is read.
inline constexpr size_t kMaxLabelBytes = size_t{1} << 20;

/// Pure. kInt yields int64_t and kText std::string; kJson yields int64_t for whole numbers, double for others, and
/// std::string. DataLoss when the bytes are not such a label.
absl::StatusOr<LabelValue> ParseLabel(ByteSpan bytes, const LabelSpec& spec);

}  // namespace millrace
