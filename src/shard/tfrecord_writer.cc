#include "shard/tfrecord_writer.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "base/number.h"
#include "shard/byte_gatherer.h"
#include "shard/npy.h"
#include "shard/number_type.h"
#include "shard/shard_sample.h"
#include "shard/tfrecord_format.h"

namespace millrace {

namespace {

// Selects a list of a Feature; the numbers are those of protocol buffers.
enum class ListOf : uint8_t { kBytes = 1, kFloats = 2, kInts = 3 };

// Holds a list and the bytes of its values, packed if they are numbers.
struct Values {
  ListOf list = ListOf::kBytes;
  std::string packed;  // of numbers
};

void AppendTagged(std::string& out, int field, uint64_t length) {
  constexpr int kDelimited = 2;
  out.push_back(static_cast<char>(field << 3 | kDelimited));
  AppendVarint(out, length);
}

std::string Tagged(int field, uint64_t length) {
  std::string head;
  AppendTagged(head, field, length);
  return head;
}

std::string PackInts(ByteSpan values) {
  std::string packed;
  for (size_t at = 0; at < values.size(); at += sizeof(uint64_t))
    AppendVarint(packed, LoadLe<uint64_t>(values.data() + at));
  return packed;
}

// Returns the field as numbers, if reading these gives the same value.
std::optional<Values> AsNumbers(const ValueField& field) {
  if (field.type == FieldType::kInt) {
    const std::optional<int64_t> number = ParseNumber<int64_t>(AsText(field.value));
    if (!number || fmt::format("{}", *number) != AsText(field.value)) return std::nullopt;
    Values values{.list = ListOf::kInts, .packed = {}};
    AppendVarint(values.packed, static_cast<uint64_t>(*number));
    return values;
  }
  if (field.type == FieldType::kFloat) {
    const std::optional<float> number = ParseNumber<float>(AsText(field.value));
    if (!number || ToDecimal(*number) != AsText(field.value)) return std::nullopt;
    Values values{.list = ListOf::kFloats, .packed = {}};
    AppendLe(values.packed, *number);
    return values;
  }
  if (field.type != FieldType::kNdarray) return std::nullopt;
  const std::optional<NpyArray> array = ParseNpy(field.value);
  // A single value would be read as a number, not as an array.
  if (!array || array->shape.size() != 1 || array->shape.front() == 1) return std::nullopt;
  if (array->type == NumberType{.kind = NumberType::Kind::kSigned, .size = 8})
    return Values{.list = ListOf::kInts, .packed = PackInts(array->values)};
  if (array->type == NumberType{.kind = NumberType::Kind::kFloat, .size = 4})
    return Values{.list = ListOf::kFloats, .packed = std::string(AsText(array->values))};
  return std::nullopt;
}

// Returns the bytes in front of the values, in the entry of the map.
std::string EntryHead(std::string_view name, ListOf list, uint64_t values_bytes) {
  // Lists without numbers are empty messages.
  const bool empty = values_bytes == 0 && list != ListOf::kBytes;
  const std::string value = empty ? std::string() : Tagged(1, values_bytes);
  const uint64_t list_bytes = value.size() + values_bytes;
  const std::string feature = Tagged(static_cast<int>(list), list_bytes);
  const std::string in_entry = Tagged(2, feature.size() + list_bytes);
  const std::string named = Tagged(1, name.size());
  std::string head = Tagged(1, named.size() + name.size() + in_entry.size() + feature.size() + list_bytes);
  return head.append(named).append(name).append(in_entry).append(feature).append(value);
}

struct MapEntry {
  std::string head;
  std::string packed;
  ByteSpan value;  // where nothing is packed
};

}  // namespace

absl::Status AppendTfRecord(std::string& out, ByteSpan data) {
  if (data.size() > kMaxRecordBytes) {
    return absl::InvalidArgumentError(
        fmt::format("a record of {} bytes; at most {} are written to TFRecord", data.size(), kMaxRecordBytes));
  }
  std::string length;
  AppendLe(length, uint64_t{data.size()});
  out.append(length);
  AppendLe(out, MaskedCrc32c(AsBytes(length)));
  out.append(AsText(data));
  AppendLe(out, MaskedCrc32c(data));
  return absl::OkStatus();
}

absl::Status AppendTfExample(std::string& out, std::string_view key, std::span<const ValueField> fields) {
  if (fields.empty() || fields.size() >= kMaxSampleFields) {
    return absl::InvalidArgumentError(fmt::format("sample '{}' has {} fields (1 to {} are written to TFRecord)", key,
                                                  fields.size(), kMaxSampleFields - 1));
  }
  std::vector<MapEntry> entries;
  entries.push_back({.head = EntryHead(kKeyFeature, ListOf::kBytes, key.size()), .packed = {}, .value = AsBytes(key)});
  for (const ValueField& field : fields) {
    if (field.name == kKeyFeature) {
      return absl::InvalidArgumentError(
          fmt::format("sample '{}' has a field '{}', which in TFRecord is the key", key, kKeyFeature));
    }
    std::optional<Values> numbers = AsNumbers(field);
    MapEntry& entry = entries.emplace_back();
    if (!numbers) {
      entry.value = field.value;
      entry.head = EntryHead(field.name, ListOf::kBytes, field.value.size());
    } else {
      entry.head = EntryHead(field.name, numbers->list, numbers->packed.size());
      entry.packed = std::move(numbers->packed);
    }
  }
  uint64_t bytes = 0;
  for (const MapEntry& entry : entries) bytes += entry.head.size() + entry.packed.size() + entry.value.size();
  AppendTagged(out, 1, bytes);
  for (const MapEntry& entry : entries) out.append(entry.head).append(entry.packed).append(AsText(entry.value));
  return absl::OkStatus();
}

}  // namespace millrace
