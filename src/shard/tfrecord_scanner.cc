#include "shard/tfrecord_scanner.h"

#include <fmt/format.h>

#include "base/crypto.h"
#include "shard/field_value.h"
#include "shard/sample_name.h"
#include "shard/tfrecord_format.h"

namespace millrace {

namespace {

// Returns whether it is gzip, or a zlib stream of any level: the two compressions of TensorFlow's writer.
bool LooksCompressed(ByteSpan head) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(head[i]); };
  return (byte(0) == 0x1f && byte(1) == 0x8b) || (byte(0) == 0x78 && (byte(0) << 8 | byte(1)) % 31 == 0);
}

std::string_view EncodingOf(const TfFeature& feature) {
  switch (feature.kind) {
    case TfValues::Kind::kInts:
      return feature.count == 1 ? encoding::kTfInt : encoding::kTfInts;
    case TfValues::Kind::kFloats:
      return feature.count == 1 ? encoding::kTfFloat : encoding::kTfFloats;
    default:
      return feature.count == 1 ? ImageEncoding(AsBytes(feature.only)) : encoding::kTfTexts;
  }
}

}  // namespace

absl::Status TfRecordScanner::Feed(ByteSpan chunk, ShardSink sink) {
  bytes_.Begin(chunk);
  while (true) {
    const uint64_t offset = bytes_.position();
    if (!length_) {
      const std::optional<ByteSpan> head = bytes_.Take(kTfRecordHeadBytes);
      if (!head) return absl::OkStatus();
      RETURN_IF_ERROR(ReadHead(offset, *head));
      continue;
    }
    const std::optional<ByteSpan> body = bytes_.Take(*length_ + kTfRecordFootBytes);
    if (!body) return absl::OkStatus();
    const ByteSpan record = body->first(*length_);
    if (MaskedCrc32c(record) != LoadLe<uint32_t>(body->data() + *length_)) {
      return absl::DataLossError(
          fmt::format("offset {}: the {} bytes of this record do not have their checksum", offset, *length_));
    }
    RETURN_IF_ERROR(ReadRecord(offset, record, sink));
    length_.reset();
  }
}

absl::Status TfRecordScanner::ReadHead(uint64_t offset, ByteSpan head) {
  const auto length = LoadLe<uint64_t>(head.data());
  if (MaskedCrc32c(head.first(8)) != LoadLe<uint32_t>(head.data() + 8)) {
    if (offset == 0 && LooksCompressed(head)) {
      return absl::InvalidArgumentError(
          "offset 0: this TFRecord file is compressed as a whole (gzip or zlib), so that its samples cannot be read "
          "singly: decompress it");
    }
    return absl::DataLossError(
        fmt::format("offset {}: no TFRecord begins here (its length {} does not have its "
                    "checksum)",
                    offset, length));
  }
  if (length > kMaxRecordBytes) {
    return absl::InvalidArgumentError(
        fmt::format("offset {}: a record of {} bytes; at most {} are read", offset, length, kMaxRecordBytes));
  }
  length_ = length;
  return absl::OkStatus();
}

absl::Status TfRecordScanner::ReadRecord(uint64_t offset, ByteSpan record, ShardSink sink) {
  sample_.key.clear();
  sample_.label.clear();
  sample_.fields.clear();
  switch (ParseTfExample(record, &features_)) {
    case TfParsed::kTooMany:
      return absl::InvalidArgumentError(
          fmt::format("offset {}: this tf.train.Example has more than {} features", offset, kMaxSampleFields));
    case TfParsed::kOther:
      sample_.fields.push_back({.name = "bin", .offset = offset, .length = record.size(), .encoding = ""});
      break;
    case TfParsed::kExample:
      for (const TfFeature& feature : features_) {
        if (feature.name.size() > kMaxNameBytes) {
          return absl::InvalidArgumentError(
              fmt::format("offset {}: the name of a feature has {} bytes (at most {} are allowed)", offset,
                          feature.name.size(), kMaxNameBytes));
        }
        AddFeature(offset, record, feature);
      }
  }
  const uint64_t begin = sample_.fields.front().offset;
  sample_.span = {.offset = begin, .length = sample_.fields.back().offset + sample_.fields.back().length - begin};
  sample_.crc32c = Crc32c(record.subspan(begin - offset, sample_.span.length));
  return sink(sample_);
}

void TfRecordScanner::AddFeature(uint64_t offset, ByteSpan record, const TfFeature& feature) {
  const bool one_text = feature.kind == TfValues::Kind::kBytes && feature.count == 1;
  // A sample has a field at least, so that a key alone is one.
  if (feature.name == kKeyFeature && one_text && !feature.only.empty() && feature.only.size() <= kMaxNameBytes &&
      features_.size() > 1) {
    sample_.key = feature.only;
    return;
  }
  const ByteSpan stored = one_text ? AsBytes(feature.only) : feature.entry;
  ShardField& field = sample_.fields.emplace_back();
  field.name = feature.name;
  field.offset = offset + static_cast<uint64_t>(stored.data() - record.data());
  field.length = stored.size();
  field.encoding = EncodingOf(feature);
  if (feature.name == kClassField) sample_.label = ClassNumber(field.encoding, stored);
}

absl::Status TfRecordScanner::Finish(ShardSink /*sink*/) {
  if (!length_ && bytes_.held() == 0) return absl::OkStatus();
  return absl::DataLossError(
      fmt::format("offset {}: the shard is truncated: {} bytes of a record are there, {} are "
                  "missing",
                  bytes_.position(), bytes_.held(),
                  (length_ ? *length_ + kTfRecordFootBytes : kTfRecordHeadBytes) - bytes_.held()));
}

}  // namespace millrace
