#include "shard/sample_gatherer.h"

#include <fmt/format.h>

#include <vector>

namespace millrace {

absl::Status SampleGatherer::Begin(Sink /*out*/) {
  whole_ = true;
  return BeginShard();
}

absl::Status SampleGatherer::BeginSample(const SampleShape& sample, Sink out) {
  if (!whole_) return absl::InternalError(fmt::format("sample '{}' ended before its fields did", sample_.key));
  sample_ = sample;
  total_ = 0;
  for (const FieldShape& field : sample.fields) total_ += field.length;
  values_.clear();
  values_.reserve(total_);
  whole_ = false;
  return total_ == 0 ? EncodeWhole(out) : absl::OkStatus();
}

absl::Status SampleGatherer::Add(ByteSpan bytes, Sink out) {
  if (bytes.empty()) return absl::OkStatus();
  if (whole_ || bytes.size() > total_ - values_.size())
    return absl::InternalError(fmt::format("sample '{}' has more bytes than its fields", sample_.key));
  values_.append(AsText(bytes));
  return values_.size() == total_ ? EncodeWhole(out) : absl::OkStatus();
}

absl::Status SampleGatherer::EncodeWhole(Sink out) {
  whole_ = true;
  std::vector<ValueField> fields;
  ByteSpan rest = AsBytes(values_);
  for (const FieldShape& field : sample_.fields) {
    fields.push_back({.name = field.name, .type = field.type, .value = rest.first(field.length)});
    rest = rest.subspan(field.length);
  }
  return Encode(sample_.key, fields, out);
}

absl::Status SampleGatherer::End(Sink out) {
  if (!whole_) return absl::InternalError(fmt::format("sample '{}' ended before its fields did", sample_.key));
  return EndShard(out);
}

}  // namespace millrace
