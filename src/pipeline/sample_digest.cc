#include "pipeline/sample_digest.h"

#include "dataset/field_of_sample.h"

namespace millrace {

absl::StatusOr<Uint128> SampleHasher::Hash(uint64_t epoch, uint64_t position, const IndexedSample& sample,
                                           ByteSpan span, std::span<const Decoded> decoded) {
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
    bool is_decoded = false;
    for (const Decoded& image : decoded) {
      if (image.field != field.name) continue;
      is_decoded = true;
      add(image.pixels);
    }
    if (is_decoded) continue;
    ASSIGN_OR_RETURN(const ByteSpan value, ValueOf(field, span, &scratch_));
    add(value);
  }
  return stream_.Digest();
}

}  // namespace millrace
