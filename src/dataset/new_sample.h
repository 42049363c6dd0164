#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace millrace {

/// A sample as it is written to an index, and as Index::ScanObject returns it. Views into memory of the
/// caller.

struct NewSampleField {
  std::string_view name;
  uint64_t offset = 0;  // of the object
  uint64_t length = 0;
  std::string_view encoding;  // shard/field_value.h; always "" for tar and raw objects
};

/// Represents a value that the index itself holds, and no object.
struct NewSampleValue {
  std::string_view name;
  std::string_view text;
  std::string_view encoding;  // what the text is: kInt, kFloat, kText ... of shard/field_value.h; "": just bytes
};

struct NewSample {
  std::string_view key;
  std::span<const NewSampleField> fields;  // as they are stored: ascending offsets, at least one
  std::optional<uint32_t> crc32c;          // of the span; nullopt if its bytes were not read
  /// The class ("" = none). Raw objects: the folder, which becomes the inline field `cls`, unless there is a value
  /// `cls`, which is a number and the label too. Shards: the value of `cls` if it is a number.
  std::string_view label;
  std::span<const NewSampleValue> values = {};  // in bytewise order of their names, which are those of no field
  /// The size of a file behind the fields from which the class was read (7.cls of raw objects), so that its bytes are
  /// the value `cls`. If it was not read, it is the last of the fields. nullopt if there is none.
  std::optional<uint64_t> class_file_bytes = std::nullopt;
};

}  // namespace millrace
