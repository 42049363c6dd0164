#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/bytes.h"
#include "base/status.h"

namespace millrace {

/// Says how the bytes of a label field are read. It includes the type, so that all labels of a data set have the same.
struct LabelSpec {
  enum class Kind : uint8_t {
    kInt,    // an integer of 64 bits: ASCII decimal, white space around it allowed; in JSON a whole number
    kFloat,  // a number, also one with a fraction; in JSON any number
    kText,   // UTF-8, as it stands; in JSON a string
  };
  Kind kind = Kind::kInt;
  std::string json_path;  // not empty: the field is JSON, and the label its member at this path: names joined by dots,
                          // `annotation.label`; a number picks an item of an array

  /// Parses "int", "float", "text", "json:PATH" (a whole number), "json-float:PATH" (a number) or "json-text:PATH" (a
  /// string). Returns InvalidArgument otherwise.
  static absl::StatusOr<LabelSpec> Parse(std::string_view text);
  friend bool operator==(const LabelSpec&, const LabelSpec&) = default;
};

using LabelValue = std::variant<int64_t, double, std::string>;

/// No larger label field is read.
inline constexpr size_t kMaxLabelBytes = size_t{1} << 20;

/// Pure. kInt yields int64_t, kFloat double and kText std::string, from JSON too. DataLoss if the bytes are not such a
/// label; InvalidArgument, with what to ask for, if they are sound, but of another kind.
absl::StatusOr<LabelValue> ParseLabel(ByteSpan bytes, const LabelSpec& spec);

}  // namespace millrace
