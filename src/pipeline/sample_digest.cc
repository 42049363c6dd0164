#include "pipeline/sample_digest.h"

#include "dataset/field_of_sample.h"

namespace millrace {

absl::StatusOr<Uint128> SampleHasher::Hash(uint64_t epoch, uint64_t position, const IndexedSample& sample,
                                           ByteSpan span, std::string_view decoded_field, ByteSpan decoded) {
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
    if (!decoded_field.empty() && field.name == decoded_field) {
      add(decoded);
      continue;
    }
    ASSIGN_OR_RETURN(const ByteSpan value, ValueOf(field, span, &scratch_));
    add(value);
  }
  return stream_.Digest();
}

}  // namespace millrace
