#include "shard/recordio_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "base/number.h"
#include "shard/byte_gatherer.h"
#include "shard/npy.h"
#include "shard/number_type.h"
#include "shard/recordio_format.h"
#include "shard/recordio_scanner.h"
#include "shard/sample_name.h"

namespace millrace {

namespace {

absl::Status Refused(std::string_view key, std::string_view why) {
  return absl::InvalidArgumentError(fmt::format("sample '{}' cannot be written to RecordIO: {}", key, why));
}

void AppendHeader(std::string& out, uint32_t flag, float label, uint64_t number) {
  AppendLe(out, flag);
  AppendLe(out, label);
  AppendLe(out, number);
  AppendLe(out, uint64_t{0});
}

absl::Status AppendPart(std::string& out, RecordIoPart part, ByteSpan data) {
  if (data.size() > kRecordIoMaxLength) {
    return absl::InvalidArgumentError(
        fmt::format("{} bytes in a row; RecordIO holds at most {}", data.size(), kRecordIoMaxLength));
  }
  AppendLe(out, kRecordIoMagic);
  AppendLe(out, static_cast<uint32_t>(part) << kRecordIoLengthBits | static_cast<uint32_t>(data.size()));
  out.append(AsText(data));
  out.append(RecordIoPadded(data.size()) - data.size(), '\0');
  return absl::OkStatus();
}

// Returns the label, if a float of 32 bits holds it.
std::optional<float> ParseClass(ByteSpan value) {
  const std::string_view text = AsText(value);
  const std::optional<float> number = ParseNumber<float>(text);
  return number && std::isfinite(*number) && ToDecimal(*number) == text ? number : std::nullopt;
}

}  // namespace

bool IsRecordIoLabel(ByteSpan value) {
  return ParseClass(value).has_value();
}

absl::Status AppendRecordIo(std::string& out, ByteSpan data) {
  if (data.size() > kMaxRecordBytes) {
    return absl::InvalidArgumentError(
        fmt::format("a record of {} bytes; at most {} are written to RecordIO", data.size(), kMaxRecordBytes));
  }
  size_t begin = 0;
  for (size_t at = 0; at + kRecordIoAlignment <= data.size(); at += kRecordIoAlignment) {
    if (LoadLe<uint32_t>(data.data() + at) != kRecordIoMagic) continue;
    const RecordIoPart part = begin == 0 ? RecordIoPart::kFirst : RecordIoPart::kMiddle;
    RETURN_IF_ERROR(AppendPart(out, part, data.subspan(begin, at - begin)));
    begin = at + kRecordIoAlignment;
  }
  return AppendPart(out, begin == 0 ? RecordIoPart::kWhole : RecordIoPart::kLast, data.subspan(begin));
}

absl::Status AppendMxnetSample(std::string& out, std::string_view key, uint64_t number,
                               std::span<const ValueField> fields) {
  const ValueField* label = nullptr;
  const ValueField* data = nullptr;
  for (const ValueField& field : fields) {
    const bool is_label = field.name == kClassField || field.name == kLabelsField;
    const ValueField*& place = is_label ? label : data;
    if (place != nullptr) {
      return Refused(key, fmt::format("it has both '{}' and '{}', and a record holds one label and one other field",
                                      place->name, field.name));
    }
    place = &field;
  }
  if (data == nullptr) return Refused(key, "it has no field besides the label");
  if (label == nullptr) {
    if (CountIrLabels(data->value)) {
      return Refused(key, fmt::format("without a label, '{}' would be read as if it began with one", data->name));
    }
  } else if (label->name == kClassField) {
    const std::optional<float> one = ParseClass(label->value);
    if (!one) return Refused(key, "its field 'cls' is not a number that a float of 32 bits holds");
    AppendHeader(out, 0, *one, number);
  } else {
    const std::optional<NpyArray> labels = ParseNpy(label->value);
    const bool fits = labels && labels->type == NumberType{.kind = NumberType::Kind::kFloat, .size = 4} &&
                      labels->shape.size() == 1 && labels->shape.front() > 1 && labels->shape.front() <= UINT32_MAX;
    if (!fits) return Refused(key, "its field 'labels' is not an array of several float32");
    AppendHeader(out, static_cast<uint32_t>(labels->shape.front()), 0, number);
    out.append(AsText(labels->values));
  }
  out.append(AsText(data->value));
  return absl::OkStatus();
}

void AppendRecordIoIndexLine(std::string& out, uint64_t number, uint64_t offset) {
  out += fmt::format("{}\t{}\n", number, offset);
}

}  // namespace millrace
