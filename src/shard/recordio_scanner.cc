#include "shard/recordio_scanner.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/crypto.h"
#include "shard/field_value.h"
#include "shard/recordio_format.h"
#include "shard/sample_name.h"

namespace millrace {

namespace {

bool HoldsMagic(ByteSpan data) {
  for (size_t at = 0; at + kRecordIoAlignment <= data.size(); at += kRecordIoAlignment) {
    if (LoadLe<uint32_t>(data.data() + at) == kRecordIoMagic) return true;
  }
  return false;
}

std::string_view NameOf(ByteSpan data, std::string_view image) {
  if (image == encoding::kJpeg) return "jpg";
  if (image == encoding::kPng) return "png";
  return AsText(data).starts_with("\x93NUMPY") ? "npy" : "bin";
}

std::string_view NameOf(uint32_t part) {
  constexpr std::string_view kNames[] = {"a whole record", "the first part", "a middle part", "the last part"};
  return kNames[part];
}

}  // namespace

std::optional<uint32_t> CountIrLabels(ByteSpan record) {
  if (record.size() < kIrHeaderBytes) return std::nullopt;
  const auto flag = LoadLe<uint32_t>(record.data());
  const auto label = std::bit_cast<float>(LoadLe<uint32_t>(record.data() + kIrLabelOffset));
  if (flag > (record.size() - kIrHeaderBytes) / kIrLabelBytes) return std::nullopt;
  if (flag == 0 ? !std::isfinite(label) : label != 0) return std::nullopt;
  return flag;
}

absl::Status RecordIoScanner::Feed(ByteSpan chunk, ShardSink sink) {
  bytes_.Begin(chunk);
  while (true) {
    const uint64_t offset = bytes_.position();
    if (!length_) {
      const std::optional<ByteSpan> head = bytes_.Take(kRecordIoHeadBytes);
      if (!head) return absl::OkStatus();
      RETURN_IF_ERROR(ReadHead(offset, *head));
      continue;
    }
    const std::optional<ByteSpan> body = bytes_.Take(RecordIoPadded(*length_));
    if (!body) return absl::OkStatus();
    RETURN_IF_ERROR(ReadPart(offset, body->first(*length_), sink));
    length_.reset();
  }
}

absl::Status RecordIoScanner::ReadHead(uint64_t offset, ByteSpan head) {
  const auto magic = LoadLe<uint32_t>(head.data());
  if (magic != kRecordIoMagic) {
    return absl::DataLossError(fmt::format(
        "offset {}: no RecordIO record begins here (its magic is {:08x}, not {:08x})", offset, magic, kRecordIoMagic));
  }
  const auto word = LoadLe<uint32_t>(head.data() + 4);
  const uint32_t part = word >> kRecordIoLengthBits;
  length_ = word & kRecordIoMaxLength;
  if (part > static_cast<uint32_t>(RecordIoPart::kLast)) {
    return absl::DataLossError(fmt::format("offset {}: a RecordIO record of the unknown kind {}", offset, part));
  }
  // After a first or middle part comes a middle or last one, and only then.
  const bool inside =
      part_ == static_cast<uint32_t>(RecordIoPart::kFirst) || part_ == static_cast<uint32_t>(RecordIoPart::kMiddle);
  const bool continues =
      part == static_cast<uint32_t>(RecordIoPart::kMiddle) || part == static_cast<uint32_t>(RecordIoPart::kLast);
  if (inside != continues) {
    return absl::DataLossError(
        fmt::format("offset {}: {} of a RecordIO record follows {}", offset, NameOf(part), NameOf(part_)));
  }
  part_ = part;
  return absl::OkStatus();
}

absl::Status RecordIoScanner::ReadPart(uint64_t offset, ByteSpan data, ShardSink sink) {
  const auto part = static_cast<RecordIoPart>(part_);
  if (part == RecordIoPart::kWhole || part == RecordIoPart::kFirst) {
    begin_ = offset;
    splits_.clear();
    if (part == RecordIoPart::kWhole) return Emit(data, sink);
    stored_.clear();
    joined_.clear();
  } else {
    // The magic of this part's head stands for the bytes that were left out.
    AppendLe(stored_, kRecordIoMagic);
    AppendLe(joined_, kRecordIoMagic);
    splits_.push_back(joined_.size());
    AppendLe(stored_, part_ << kRecordIoLengthBits | static_cast<uint32_t>(data.size()));
  }
  RETURN_IF_ERROR(CheckInnerPart(offset, data));
  stored_.append(AsText(data));
  joined_.append(AsText(data));
  return part == RecordIoPart::kLast ? EmitJoined(sink) : absl::OkStatus();
}

absl::Status RecordIoScanner::CheckInnerPart(uint64_t offset, ByteSpan data) const {
  if (part_ != static_cast<uint32_t>(RecordIoPart::kLast) && data.size() % kRecordIoAlignment != 0) {
    return absl::DataLossError(
        fmt::format("offset {}: {} of a RecordIO record has {} bytes, which is not a multiple of {}", offset,
                    NameOf(part_), data.size(), kRecordIoAlignment));
  }
  if (HoldsMagic(data)) {
    return absl::DataLossError(
        fmt::format("offset {}: {} of a RecordIO record holds the magic number", offset, NameOf(part_)));
  }
  if (stored_.size() + data.size() > kMaxRecordBytes) {
    return absl::InvalidArgumentError(
        fmt::format("offset {}: a record of more than {} bytes", begin_, kMaxRecordBytes));
  }
  return absl::OkStatus();
}

absl::Status RecordIoScanner::EmitJoined(ShardSink sink) {
  return Emit(AsBytes(joined_), sink);
}

// Returns the place of a byte of the data in the stored bytes.
uint64_t RecordIoScanner::Stored(uint64_t offset) const {
  const auto heads = std::upper_bound(splits_.begin(), splits_.end(), offset) - splits_.begin();
  return offset + static_cast<uint64_t>(heads) * (kRecordIoHeadBytes - kRecordIoAlignment);
}

// Adds the bytes of the data from `begin` to `end`.
void RecordIoScanner::AddField(std::string_view name, uint64_t begin, uint64_t end, std::string_view encoding) {
  ShardField& field = sample_.fields.emplace_back();
  const uint64_t stored = Stored(begin);
  field.name = name;
  field.offset = begin_ + stored;
  field.length = begin == end ? 0 : Stored(end - 1) + 1 - stored;
  field.encoding = field.length == end - begin ? "" : encoding::kRecordIoParts;
  field.encoding += encoding;
}

absl::Status RecordIoScanner::Emit(ByteSpan record, ShardSink sink) {
  sample_.fields.clear();
  sample_.label.clear();
  uint64_t begin = 0;
  if (const std::optional<uint32_t> labels = CountIrLabels(record)) {
    begin = kIrHeaderBytes + *labels * kIrLabelBytes;
    if (*labels > 1) {
      AddField(kLabelsField, kIrHeaderBytes, begin, "f4s");
    } else {
      const uint64_t at = *labels == 0 ? kIrLabelOffset : kIrHeaderBytes;
      AddField(kClassField, at, at + kIrLabelBytes, "f4");
      sample_.label = ClassNumber("f4", record.subspan(at, kIrLabelBytes));
    }
  }
  const ByteSpan data = record.subspan(begin);
  const std::string_view image = ImageEncoding(data);
  AddField(NameOf(data, image), begin, record.size(), image);
  const ShardField& first = sample_.fields.front();
  const ShardField& last = sample_.fields.back();
  sample_.span = {.offset = first.offset, .length = last.offset + last.length - first.offset};
  const ByteSpan stored = splits_.empty() ? record : AsBytes(stored_);
  sample_.crc32c = Crc32c(stored.subspan(sample_.span.offset - begin_, sample_.span.length));
  return sink(sample_);
}

absl::Status RecordIoScanner::Finish(ShardSink /*sink*/) {
  const bool inside =
      part_ == static_cast<uint32_t>(RecordIoPart::kFirst) || part_ == static_cast<uint32_t>(RecordIoPart::kMiddle);
  if (!length_ && bytes_.held() == 0 && !inside) return absl::OkStatus();
  return absl::DataLossError(
      fmt::format("offset {}: the shard is truncated: it ends within a RecordIO record", bytes_.position()));
}

}  // namespace millrace
