#include "shard/mds_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/number.h"
#include "base/utf8.h"
#include "shard/byte_gatherer.h"
#include "shard/npy.h"
#include "shard/number_type.h"
#include "shard/shard_sample.h"

namespace millrace {

namespace {

using Json = nlohmann::json;

constexpr uint64_t kOffsetBytes = sizeof(uint32_t);

Json Description(std::span<const MdsColumn> columns) {
  Json json{{"version", 2}, {"format", "mds"}, {"compression", nullptr}, {"hashes", Json::array()}};
  json["size_limit"] = nullptr;
  for (const MdsColumn& column : columns) {
    json["column_names"].push_back(column.name);
    json["column_encodings"].push_back(column.encoding);
    json["column_sizes"].push_back(column.fixed_size == 0 ? Json() : Json(column.fixed_size));
  }
  return json;
}

// The result is u8 type, u8 axes << 2 | log2 of an axis' bytes, the axes, the values.
std::optional<std::string> EncodeArray(ByteSpan npy) {
  constexpr size_t kMaxMdsAxes = 63;
  const std::optional<NpyArray> array = ParseNpy(npy);
  if (!array || array->shape.empty() || array->shape.size() > kMaxMdsAxes || array->values.empty()) return std::nullopt;
  const uint64_t largest = *std::max_element(array->shape.begin(), array->shape.end());
  const uint32_t log_bytes = largest >> 8 == 0 ? 0 : largest >> 16 == 0 ? 1 : largest >> 32 == 0 ? 2 : 3;
  std::string out;
  out.push_back(static_cast<char>(MdsTypeCode(array->type)));
  out.push_back(static_cast<char>(array->shape.size() << 2 | log_bytes));
  for (const uint64_t axis : array->shape) out.append(reinterpret_cast<const char*>(&axis), size_t{1} << log_bytes);
  return out.append(AsText(array->values));
}

// Returns a value as its column stores it; nullopt when it does not fit.
std::optional<std::string> Encode(const MdsColumn& column, ByteSpan value) {
  std::string out;
  if (column.encoding == "int") {
    const std::optional<int64_t> number = ParseNumber<int64_t>(AsText(value));
    if (!number || fmt::format("{}", *number) != AsText(value)) return std::nullopt;
    AppendLe(out, *number);
    return out;
  }
  if (column.encoding == "float64") {
    const std::optional<double> number = ParseNumber<double>(AsText(value));
    if (!number || ToDecimal(*number) != AsText(value)) return std::nullopt;
    AppendLe(out, *number);
    return out;
  }
  if (column.encoding == "ndarray") return EncodeArray(value);
  const bool text = column.encoding == "str" || column.encoding == "json";
  if (text && FirstNotUtf8(AsText(value)) < value.size()) return std::nullopt;
  return std::string(AsText(value));
}

}  // namespace

bool MdsColumnHolds(const MdsColumn& column, ByteSpan value) {
  return Encode(column, value).has_value();
}

MdsColumn MdsColumnFor(std::string_view name, FieldType type, std::string_view image) {
  MdsColumn column{.name = std::string(name), .encoding = "bytes", .fixed_size = 0};
  switch (type) {
    case FieldType::kInt:
      column.encoding = "int";
      column.fixed_size = sizeof(int64_t);
      break;
    case FieldType::kFloat:
      column.encoding = "float64";
      column.fixed_size = sizeof(double);
      break;
    case FieldType::kText:
      column.encoding = "str";
      break;
    case FieldType::kJson:
      column.encoding = "json";
      break;
    case FieldType::kNdarray:
      column.encoding = "ndarray";
      break;
    case FieldType::kBytes:
      if (!image.empty()) column.encoding = image;
      break;
  }
  return column;
}

absl::StatusOr<std::vector<MdsColumn>> MdsColumnsOf(std::vector<MdsColumn> columns) {
  if (columns.empty() || columns.size() >= kMaxSampleFields) {
    return absl::InvalidArgumentError(
        fmt::format("{} fields (1 to {} are written to MDS)", columns.size(), kMaxSampleFields - 1));
  }
  for (const MdsColumn& column : columns) {
    if (FirstNotUtf8(column.name) < column.name.size())
      return absl::InvalidArgumentError("the name of a field is not UTF-8, which MDS cannot hold");
  }
  columns.push_back({.name = std::string(kKeyColumn), .encoding = "str", .fixed_size = 0});
  std::sort(columns.begin(), columns.end(), [](const MdsColumn& a, const MdsColumn& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(columns.begin(), columns.end(),
                                        [](const MdsColumn& a, const MdsColumn& b) { return a.name == b.name; });
  if (twice == columns.end()) return columns;
  return absl::InvalidArgumentError(fmt::format("two fields '{}' (the key is one in MDS)", twice->name));
}

absl::StatusOr<std::vector<MdsColumn>> MdsColumnsFor(std::span<const ValueField> fields) {
  std::vector<MdsColumn> columns;
  for (const ValueField& field : fields) {
    const std::string_view image = field.type == FieldType::kBytes ? ImageEncoding(field.value) : std::string_view();
    columns.push_back(MdsColumnFor(field.name, field.type, image));
  }
  return MdsColumnsOf(std::move(columns));
}

MdsShardWriter::MdsShardWriter(std::vector<MdsColumn> columns)
    : columns_(std::move(columns)), config_(Description(columns_).dump()) {}

uint64_t MdsShardWriter::bytes() const {
  return (ends_.size() + 2) * kOffsetBytes + config_.size() + data_.size();
}

absl::Status MdsShardWriter::Add(std::string_view key, std::span<const ValueField> fields) {
  const size_t before = data_.size();
  absl::Status status = AppendSample(key, fields);
  if (status.ok()) {
    ends_.push_back(data_.size());
    if (bytes() <= kMaxMdsShardBytes && ends_.size() <= kMaxMdsSamples && data_.size() - before <= kMaxRecordBytes)
      return absl::OkStatus();
    ends_.pop_back();
    status = absl::InvalidArgumentError("an MDS shard holds at most 4 GiB");
  }
  data_.resize(before);
  return Annotate(status, fmt::format("sample '{}' cannot be written to MDS", key));
}

absl::Status MdsShardWriter::AppendSample(std::string_view key, std::span<const ValueField> fields) {
  if (fields.size() + 1 != columns_.size()) {
    return absl::InvalidArgumentError(
        fmt::format("it has {} fields, the first sample has {}", fields.size(), columns_.size() - 1));
  }
  std::string sizes;
  std::string values;
  for (const MdsColumn& column : columns_) {
    ByteSpan value = AsBytes(key);
    if (column.name != kKeyColumn) {
      const auto* field = std::find_if(fields.data(), fields.data() + fields.size(),
                                       [&](const auto& f) { return f.name == column.name; });
      if (field == fields.data() + fields.size()) {
        return absl::InvalidArgumentError(fmt::format("it lacks the field '{}' of the first sample", column.name));
      }
      value = field->value;
    }
    const std::optional<std::string> encoded = Encode(column, value);
    if (!encoded || encoded->size() > kMaxRecordBytes) {
      return absl::InvalidArgumentError(
          fmt::format("the value of '{}' does not fit a column of the encoding \"{}\"", column.name, column.encoding));
    }
    if (column.fixed_size == 0) AppendLe(sizes, static_cast<uint32_t>(encoded->size()));
    values += *encoded;
  }
  data_ += sizes;
  data_ += values;
  return absl::OkStatus();
}

std::string MdsShardWriter::Head() const {
  std::string head;
  const uint64_t data_at = bytes() - data_.size();
  AppendLe(head, static_cast<uint32_t>(ends_.size()));
  AppendLe(head, static_cast<uint32_t>(data_at));
  for (const uint64_t end : ends_) AppendLe(head, static_cast<uint32_t>(data_at + end));
  return head + config_;
}

std::string MdsIndexJson(std::span<const MdsColumn> columns, std::span<const MdsShardEntry> shards) {
  Json list = Json::array();
  for (const MdsShardEntry& shard : shards) {
    Json json = Description(columns);
    json["samples"] = shard.samples;
    json["raw_data"] = {{"basename", shard.name}, {"bytes", shard.bytes}, {"hashes", Json::object()}};
    json["zip_data"] = nullptr;
    list.push_back(std::move(json));
  }
  return Json{{"version", 2}, {"shards", std::move(list)}}.dump() + '\n';
}

}  // namespace millrace
