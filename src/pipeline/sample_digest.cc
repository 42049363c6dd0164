#include "pipeline/sample_digest.h"

namespace millrace {

ByteSpan FieldBytes(const IndexedField& field, ByteSpan span) {
  return field.is_inline ? AsBytes(field.inline_text) : span.subspan(field.offset, field.length);
}

Uint128 SampleHasher::Hash(uint64_t epoch, uint64_t position, const IndexedSample& sample, ByteSpan span,
                           std::string_view decoded_field, ByteSpan decoded) {
  stream_.Reset();
  stream_.UpdateLe64(epoch);
  stream_.UpdateLe64(position);
  const auto add = [this](ByteSpan bytes) {
    stream_.UpdateLe64(bytes.size());
    stream_.Update(bytes);
  };
  add(AsBytes(sample.key));
  for (const IndexedField& field : sample.fields) {
    add(AsBytes(field.name));
    const bool replaced = !decoded_field.empty() && field.name == decoded_field;
    add(replaced ? decoded : FieldBytes(field, span));
  }
  return stream_.Digest();
}

}  // namespace millrace
