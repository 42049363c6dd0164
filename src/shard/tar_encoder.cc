#include "shard/tar_encoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "shard/tar_writer.h"

namespace millrace {

namespace {

std::string MemberName(const SampleShape& sample, const FieldShape& field) {
  return fmt::format("{}.{}", sample.key, field.name);
}

}  // namespace

absl::StatusOr<uint64_t> TarEncoder::SampleBytes(const SampleShape& sample) const {
  uint64_t bytes = 0;
  for (const FieldShape& field : sample.fields) {
    ASSIGN_OR_RETURN(const uint64_t header, TarHeaderBytes(MemberName(sample, field), field.length));
    bytes += header + TarPadded(field.length);
  }
  return bytes;
}

uint64_t TarEncoder::OverheadBytes(uint64_t /*samples*/) const {
  return kTarEndBytes;
}

absl::Status TarEncoder::Begin(std::span<const uint64_t> /*sample_bytes*/, Sink /*out*/) {
  sample_.fields.clear();
  field_ = 0;
  left_ = 0;
  return absl::OkStatus();
}

absl::Status TarEncoder::BeginSample(const SampleShape& sample, Sink out) {
  if (field_ < sample_.fields.size())
    return absl::InternalError(fmt::format("sample '{}' ended before its fields did", sample_.key));
  sample_ = sample;
  field_ = 0;
  return BeginField(out);
}

// Up to the next field that has bytes.
absl::Status TarEncoder::BeginField(Sink out) {
  for (; field_ < sample_.fields.size(); ++field_) {
    const FieldShape& field = sample_.fields[field_];
    std::string header;
    RETURN_IF_ERROR(AppendTarHeader(header, MemberName(sample_, field), field.length));
    RETURN_IF_ERROR(out(AsBytes(header)));
    left_ = field.length;
    if (left_ > 0) break;
  }
  return absl::OkStatus();
}

absl::Status TarEncoder::EndField(Sink out) {
  std::string padding;
  AppendTarPadding(padding, sample_.fields[field_].length);
  if (!padding.empty()) RETURN_IF_ERROR(out(AsBytes(padding)));
  ++field_;
  return BeginField(out);
}

absl::Status TarEncoder::Add(ByteSpan bytes, Sink out) {
  while (!bytes.empty()) {
    if (field_ == sample_.fields.size())
      return absl::InternalError(fmt::format("sample '{}' has more bytes than its fields", sample_.key));
    const ByteSpan piece = bytes.first(static_cast<size_t>(std::min<uint64_t>(bytes.size(), left_)));
    RETURN_IF_ERROR(out(piece));
    bytes = bytes.subspan(piece.size());
    left_ -= piece.size();
    if (left_ == 0) RETURN_IF_ERROR(EndField(out));
  }
  return absl::OkStatus();
}

absl::Status TarEncoder::End(Sink out) {
  if (field_ < sample_.fields.size())
    return absl::InternalError(fmt::format("sample '{}' ended before its fields did", sample_.key));
  std::string end;
  AppendTarEnd(end);
  return out(AsBytes(end));
}

}  // namespace millrace
