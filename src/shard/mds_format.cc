#include "shard/mds_format.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "shard/field_value.h"
#include "shard/json_brief.h"
#include "shard/number_type.h"
#include "shard/sample_name.h"
#include "shard/shard_sample.h"

namespace millrace {

namespace {

using Json = nlohmann::json;

constexpr uint64_t kVersion = 2;
constexpr size_t kMaxMdsHashes = 64;  // of a shard

// Returns the member of an object, or null.
const Json& Member(const Json& object, const char* name) {
  static const Json kNull;
  const auto found = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && found != object.end() ? *found : kNull;
}

absl::Status CheckFormat(const Json& json, std::string_view what) {
  if (json.is_discarded() || !json.is_object())
    return absl::DataLossError(fmt::format("{} is not a JSON object", what));
  const Json& version = Member(json, "version");
  if (!version.is_number_unsigned() || version != kVersion) {
    return absl::InvalidArgumentError(
        fmt::format("{} is of version {}; only MDS of version {} is read", what, BriefJson(version), kVersion));
  }
  return absl::OkStatus();
}

absl::StatusOr<MdsColumn> ParseColumn(const Json& name, const Json& mds_encoding, const Json& size) {
  if (!name.is_string() || !mds_encoding.is_string() || !(size.is_null() || size.is_number_unsigned())) {
    return absl::DataLossError("a column lacks its name, encoding or size");
  }
  MdsColumn column{.name = name, .encoding = mds_encoding, .fixed_size = size.is_null() ? 0 : size.get<uint64_t>()};
  if (column.name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(fmt::format("the name of a column has {} bytes", column.name.size()));
  }
  if (column.fixed_size > kMaxMdsShardBytes) {
    return absl::DataLossError(
        fmt::format("the column {} has values of {} bytes", BriefName(column.name), column.fixed_size));
  }
  return column;
}

// An entry's "hashes": {"sha1": "...", ...}
absl::Status ParseMdsHashes(const Json& hashes, MdsShardEntry* entry) {
  if (hashes.is_null()) return absl::OkStatus();
  if (!hashes.is_object() || hashes.size() > kMaxMdsHashes)
    return absl::DataLossError(fmt::format("the hashes of its shard {} are not such a list", BriefName(entry->name)));
  for (const auto& [name, digits] : hashes.items()) {
    if (!digits.is_string())
      return absl::DataLossError(fmt::format("a hash of its shard {} is not a text", BriefName(entry->name)));
    entry->hashes.emplace_back(name, digits.get_ref<const std::string&>());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> EncodingOfMds(std::string_view mds_encoding) {
  if (mds_encoding == "pkl") {
    return absl::InvalidArgumentError(
        "\"pkl\" (a Python pickle), which can run any code when it is read and is refused: write the data again with "
        "other encodings");
  }
  if (mds_encoding == "bytes" || mds_encoding == "jpegarray" || mds_encoding == "jpeg_array" ||
      mds_encoding == "list[pil]" || mds_encoding == "list[jpeg]" || mds_encoding == "list[png]") {
    return std::string(encoding::kBytes);
  }
  if (mds_encoding == "str" || mds_encoding == "str_decimal") return std::string(encoding::kText);
  if (mds_encoding == "str_int") return std::string(encoding::kInt);
  if (mds_encoding == "str_float") return std::string(encoding::kFloat);
  if (mds_encoding == "int") return std::string("i8");
  for (const std::string_view same : {encoding::kJpeg, encoding::kPng, encoding::kJson, encoding::kPil}) {
    if (mds_encoding == same) return std::string(same);
  }
  if (mds_encoding.size() <= kMaxNameBytes &&
      (mds_encoding == encoding::kNdarray || mds_encoding.starts_with("ndarray:"))) {
    return std::string(mds_encoding);
  }
  if (const std::optional<NumberType> type = ParseNumpyName(mds_encoding)) return NpyDescr(*type).substr(1);
  return absl::InvalidArgumentError(fmt::format("{}, which is not known here", BriefName(mds_encoding)));
}

uint8_t MdsTypeCode(NumberType type) {
  const int kind = type.kind == NumberType::Kind::kFloat ? 2 : type.kind == NumberType::Kind::kSigned ? 1 : 0;
  return static_cast<uint8_t>(type.size * 8 + kind);
}

std::optional<NumberType> ParseMdsTypeCode(uint8_t code) {
  for (const std::string_view name : {"u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8"}) {
    const std::optional<NumberType> type = ParseNumberType(name);
    if (type && MdsTypeCode(*type) == code) return type;
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<MdsColumn>> ParseMdsColumns(std::string_view json) {
  const Json config = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  RETURN_IF_ERROR(CheckFormat(config, "the description of its columns"));
  if (Member(config, "format") != "mds") {
    return absl::InvalidArgumentError(
        fmt::format("a shard of the format {}, not \"mds\"", BriefJson(Member(config, "format"))));
  }
  const Json& names = Member(config, "column_names");
  const Json& encodings = Member(config, "column_encodings");
  const Json& sizes = Member(config, "column_sizes");
  if (!names.is_array() || !encodings.is_array() || !sizes.is_array() || names.size() != encodings.size() ||
      names.size() != sizes.size()) {
    return absl::DataLossError("the lists of its columns' names, encodings and sizes are not of one length");
  }
  if (names.empty() || names.size() > kMaxSampleFields) {
    return absl::InvalidArgumentError(fmt::format("{} columns (1 to {} are allowed)", names.size(), kMaxSampleFields));
  }
  std::vector<MdsColumn> columns;
  std::set<std::string_view> seen;
  columns.reserve(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    ASSIGN_OR_RETURN(MdsColumn column, ParseColumn(names[i], encodings[i], sizes[i]));
    columns.push_back(std::move(column));
    if (!seen.insert(columns.back().name).second) {
      return absl::InvalidArgumentError(fmt::format("two columns {}", BriefName(columns.back().name)));
    }
  }
  return columns;
}

absl::StatusOr<std::vector<MdsShardEntry>> ParseMdsIndex(std::string_view json) {
  const Json index = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  RETURN_IF_ERROR(CheckFormat(index, "it"));
  const Json& shards = Member(index, "shards");
  if (!shards.is_array()) return absl::DataLossError("it has no list of shards");
  std::vector<MdsShardEntry> entries;
  for (const Json& shard : shards) {
    const Json& file = Member(shard, "raw_data");
    const Json& name = Member(file, "basename");
    const Json& bytes = Member(file, "bytes");
    const Json& samples = Member(shard, "samples");
    if (!name.is_string() || !bytes.is_number_unsigned() || !samples.is_number_unsigned()) {
      return absl::DataLossError(fmt::format("its shard {} lacks name, size or number of samples", entries.size()));
    }
    entries.push_back({.name = name, .bytes = bytes, .samples = samples});
    RETURN_IF_ERROR(ParseMdsHashes(Member(file, "hashes"), &entries.back()));
  }
  return entries;
}

}  // namespace millrace
