#include "dataset/field_of_sample.h"

#include <fmt/format.h>

#include "shard/field_value.h"

namespace millrace {

absl::StatusOr<ByteSpan> ValueOf(const IndexedField& field, ByteSpan span, std::string* scratch) {
  if (field.is_inline) return AsBytes(field.inline_text);
  absl::StatusOr<ByteSpan> value = FieldValue(field.encoding, span.subspan(field.offset, field.length), scratch);
  if (value.ok()) return value;
  return absl::DataLossError(fmt::format("field '{}': {}", field.name, ToStd(value.status().message())));
}

}  // namespace millrace
