#include "shard/tar_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "shard/sample_name.h"
#include "shard/tar_key.h"
#include "shard/tar_writer.h"

namespace millrace {

namespace {

std::string MemberName(const SampleShape& sample, const FieldShape& field) {
  return fmt::format("{}.{}", EscapeTarKey(sample.key), field.name);
}

// Readers split the member's name again: they must find the same sample and field.
absl::Status CheckName(const SampleShape& sample, const FieldShape& field, std::string_view member) {
  const std::string key = EscapeTarKey(sample.key);
  const std::optional<SampleName> read = SplitSampleName(member);
  if (read && read->key == key && read->field == field.name) return absl::OkStatus();
  const std::string plain = key + ".x";
  const std::optional<SampleName> with_plain_field = SplitSampleName(plain);
  if ((!read || read->key != key) && (!with_plain_field || with_plain_field->key != key)) {
    return absl::InvalidArgumentError(
        fmt::format("sample '{}': a tar shard cannot hold that key (it must not end with '/', and not begin with "
                    "'./'); rename it at the source",
                    sample.key));
  }
  return absl::InvalidArgumentError(
      fmt::format("sample '{}': a tar shard cannot hold its field '{}' under that name (it must be lower case and "
                  "without '/'); name the fields to pack, and this one "
                  "again: --field {}=NAME",
                  sample.key, field.name, field.NameInSource()));
}

}  // namespace

absl::StatusOr<uint64_t> TarEncoder::SampleBytes(const SampleShape& sample) const {
  uint64_t bytes = 0;
  for (const FieldShape& field : sample.fields) {
    const std::string member = MemberName(sample, field);
    RETURN_IF_ERROR(CheckName(sample, field, member));
    ASSIGN_OR_RETURN(const uint64_t header, TarHeaderBytes(member, field.length));
    bytes += header + TarPadded(field.length);
  }
  return bytes;
}

uint64_t TarEncoder::OverheadBytes(uint64_t /*samples*/) const {
  return kTarEscapedKeysBytes + kTarEndBytes;
}

uint64_t TarEncoder::MaxShardBytes() const {
  return kTarMaxOffset;
}

absl::Status TarEncoder::Begin(Sink out) {
  sample_.fields.clear();
  field_ = 0;
  left_ = 0;
  std::string head;
  AppendTarEscapedKeys(head);
  return out(AsBytes(head));
}

absl::Status TarEncoder::BeginSample(const SampleShape& sample, Sink out) {
  if (field_ < sample_.fields.size())
    return absl::InternalError(fmt::format("sample '{}' ended before its fields did", sample_.key));
  sample_ = sample;
  field_ = 0;
  return BeginField(out);
}

// Continues to the next field that has bytes.
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
