#include "shard/json_lines_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/number.h"
#include "shard/field_value.h"
#include "shard/json_records.h"
#include "shard/label_kinds.h"
#include "shard/manifest_names.h"
#include "shard/number_type.h"
#include "shard/sample_name.h"

namespace millrace {

namespace {

using Json = nlohmann::json;

constexpr size_t kMaxLineBytes = 1 << 20;
constexpr size_t kMaxColumns = 1 << 16;
constexpr int kMaxLineDepth = 100;  // of JSON
constexpr std::string_view kLineWord = "line";
constexpr std::string_view kEntryWord = "entry";

// JSON that is nested deeper than anybody means counts as malformed.
absl::StatusOr<Json> ParseJson(std::string_view text) {
  bool too_deep = false;
  const auto bound = [&too_deep](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxLineDepth;
    return !too_deep;
  };
  try {
    Json json = Json::parse(text, bound);
    if (!too_deep && json.is_object()) return json;
  } catch (const Json::out_of_range&) {
    return absl::InvalidArgumentError("a number in it is too large for a float of 64 bits; write it as text");
  } catch (const Json::exception&) {
  }
  return absl::InvalidArgumentError("no JSON object (in UTF-8)");
}

// Returns true for a member beside X-metadata that is a class, as Ground Truth writes it, and not a box, a mask or a
// list.
bool IsClassAttribute(const Json& value, const Json& metadata) {
  if (!metadata.is_object()) return false;
  const auto type = metadata.find("type");
  if (type == metadata.end() || !type->is_string()) return value.is_number_integer();
  return type->get_ref<const std::string&>().ends_with("-classification") &&
         (value.is_number_integer() || value.is_string());
}

// Returns the names of all such members.
std::vector<std::string> ClassAttributes(const Json& row) {
  std::vector<std::string> found;
  for (const auto& [name, value] : row.items()) {
    const auto metadata = row.find(name + "-metadata");
    if (metadata != row.end() && IsClassAttribute(value, *metadata)) found.push_back(name);
  }
  return found;
}

class JsonLinesManifest {
 public:
  /// `array` says that there is an array of objects in place of lines.
  JsonLinesManifest(const ManifestColumns& columns, ManifestSink each, bool array)
      : columns_(columns),
        each_(each),
        array_(array),
        labels_(columns.rows == RowsName::kKeys, array ? kEntryWord : kLineWord) {
    if (array) manifest_.row_word = kEntryWord;
  }

  absl::StatusOr<Manifest> Read(std::string_view text);

 private:
  absl::Status Wrong(uint64_t line, std::string_view what) const { return WrongLine(line, what, manifest_.row_word); }
  absl::Status TakeLines(std::string_view text);
  absl::Status TakeRow(std::string_view text, uint64_t line);
  absl::Status TakeLabel(const std::string& name, const Json& value, uint64_t line);
  absl::Status TakeAttribute(const Json& row, uint64_t line);
  absl::Status TakeValue(const std::string& name, const Json& value, uint64_t line);
  absl::StatusOr<uint32_t> ColumnId(const std::string& name, std::string_view encoding, uint64_t line);

  const ManifestColumns& columns_;
  const ManifestSink each_;
  const bool array_;
  std::map<std::pair<std::string, std::string_view>, uint32_t> column_ids_;
  std::string label_;                                     // of the row in hand
  std::vector<std::pair<uint32_t, std::string>> values_;  // the same
  std::vector<ManifestCell> row_;                         // the same
  std::vector<std::string> attributes_;                   // that may be the label; empty: no row had one yet
  LabelKinds labels_;
  Manifest manifest_;
};

absl::StatusOr<uint32_t> JsonLinesManifest::ColumnId(const std::string& name, std::string_view encoding,
                                                     uint64_t line) {
  const auto [found, added] =
      column_ids_.try_emplace({name, encoding}, static_cast<uint32_t>(manifest_.columns.size()));
  if (added) {
    if (manifest_.columns.size() == kMaxColumns)
      return Wrong(line, fmt::format("more than {} names of members; what names a thing is a value", kMaxColumns));
    manifest_.columns.push_back({.name = name, .encoding = encoding});
  }
  return found->second;
}

absl::Status JsonLinesManifest::TakeValue(const std::string& name, const Json& value, uint64_t line) {
  if (value.is_null()) return absl::OkStatus();
  std::string_view encoding = encoding::kJson;
  std::string text;
  if (value.is_number_integer()) {
    encoding = encoding::kInt;
    text = value.dump();
  } else if (value.is_number_float()) {
    encoding = encoding::kFloat;
    text = ToDecimal(value.get<double>());
  } else if (value.is_string()) {
    encoding = encoding::kText;
    text = value.get<std::string>();
  } else {
    text = value.dump();
  }
  ASSIGN_OR_RETURN(const uint32_t column, ColumnId(name, encoding, line));
  values_.emplace_back(column, std::move(text));
  return absl::OkStatus();
}

// Returns all digits of a whole number that is too large for 64 bits, which the parser takes for a float.
std::string NumberText(const Json& value) {
  constexpr double kHuge = 1e18;
  if (!value.is_number_float()) return value.dump();
  const double number = value.get<double>();
  return std::abs(number) >= kHuge && std::isfinite(number) ? fmt::format("{:.0f}", number) : value.dump();
}

absl::Status JsonLinesManifest::TakeLabel(const std::string& name, const Json& value, uint64_t line) {
  manifest_.has_labels = true;
  if (value.is_null()) return absl::OkStatus();
  const bool may_be_float = columns_.rows == RowsName::kKeys;
  if (value.is_boolean()) {
    label_ = value.get<bool>() ? "true" : "false";
    labels_.Add(label_, line, /*quoted=*/true);
    return absl::OkStatus();
  }
  if (!value.is_string() && !value.is_number_integer() && !(may_be_float && value.is_number())) {
    return Wrong(line,
                 fmt::format("the label '{}' is neither text nor a whole number; if it is not a class, rename it: "
                             "it is a field then",
                             name));
  }
  label_ = value.is_string() ? std::string(TrimCell(value.get_ref<const std::string&>())) : NumberText(value);
  labels_.Add(label_, line, value.is_string());
  return absl::OkStatus();
}

// The attribute must be the same in all rows, so that their order means nothing.
absl::Status JsonLinesManifest::TakeAttribute(const Json& row, uint64_t line) {
  std::vector<std::string> attributes = ClassAttributes(row);
  if (attributes.empty()) return absl::OkStatus();
  if (attributes_.empty()) attributes_ = attributes;
  if (attributes != attributes_) {
    return Wrong(line, fmt::format("its label attribute is '{}', and that of lines before '{}'; call the label 'label'",
                                   fmt::join(attributes, "', '"), fmt::join(attributes_, "', '")));
  }
  if (attributes.size() > 1) return absl::OkStatus();  // it is not known which one
  return TakeLabel(attributes.front(), row[attributes.front()], line);
}

absl::Status JsonLinesManifest::TakeRow(std::string_view text, uint64_t line) {
  if (text.size() > kMaxLineBytes) return Wrong(line, fmt::format("more than {} bytes", kMaxLineBytes));
  absl::StatusOr<Json> parsed = ParseJson(text);
  if (!parsed.ok()) {
    if (absl::StatusOr<Json> plain = ParseJson(WithoutNan(text)); plain.ok()) parsed = *std::move(plain);
  }
  if (!parsed.ok()) return Wrong(line, ToStd(parsed.status().message()));
  const Json& json = *parsed;
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) names.push_back(name);
  const absl::StatusOr<std::optional<size_t>> found = FindNameColumn(columns_, names);
  if (!found.ok()) return Wrong(line, ToStd(found.status().message()));
  const std::optional<size_t> path = *found;
  if (columns_.rows == RowsName::kKeys && !path) return Wrong(line, NoNameColumn(columns_, "members", names));
  const bool is_number = columns_.rows == RowsName::kKeys && path && json[names[*path]].is_number_integer();
  if (!path || (!json[names[*path]].is_string() && !is_number)) {
    return Wrong(line, fmt::format("none of its members ({}) names an object; call that one 'path', or 'source-ref'",
                                   fmt::join(names, ", ")));
  }
  std::optional<size_t> label;
  if (columns_.label.empty()) {
    label = UsualLabelColumn(names);
    if (label) RETURN_IF_ERROR(CheckLabelName(names, *label, line, manifest_.row_word));
  } else if (const auto named = std::find(names.begin(), names.end(), columns_.label); named != names.end()) {
    label = static_cast<size_t>(named - names.begin());  // rows may lack it
  }
  label_.clear();
  values_.clear();
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty() || names[i].size() > kMaxNameBytes)
      return Wrong(line, fmt::format("member {} has no name, or a very long one", i + 1));
    if (i == *path) continue;
    const Json& value = json[names[i]];
    RETURN_IF_ERROR(i == label ? TakeLabel(names[i], value, line) : TakeValue(names[i], value, line));
  }
  if (!label && columns_.label.empty()) RETURN_IF_ERROR(TakeAttribute(json, line));
  row_.clear();
  for (const auto& [column, value] : values_) row_.push_back({.column = column, .text = value});
  const Json& named = json[names[*path]];
  const std::string name = named.is_string() ? named.get<std::string>() : named.dump();
  if (name.empty()) return Wrong(line, "an empty path");
  return each_(manifest_, {.path = name, .line = line, .label = label_, .cells = row_});
}

absl::Status JsonLinesManifest::TakeLines(std::string_view text) {
  const std::string_view whole = text;
  bool first = true;
  for (uint64_t line = 1; !text.empty(); ++line) {
    const size_t length = std::min(text.find('\n'), text.size());
    const std::string_view row = text.substr(0, length);
    text.remove_prefix(std::min(text.size(), length + 1));
    if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const absl::Status status = TakeRow(row, line);
    const std::string advice = first && absl::IsInvalidArgument(status) ? AdviceOnTable(whole) : "";
    if (!advice.empty()) return absl::InvalidArgumentError(fmt::format("{}; {}", ToStd(status.message()), advice));
    RETURN_IF_ERROR(status);
    first = false;
  }
  return absl::OkStatus();
}

absl::StatusOr<Manifest> JsonLinesManifest::Read(std::string_view text) {
  const auto take = [this](std::string_view entry, uint64_t number) { return TakeRow(entry, number); };
  RETURN_IF_ERROR(array_ ? ForEachEntry(text, take) : TakeLines(text));
  if (!columns_.label.empty() && !manifest_.has_labels)
    return absl::InvalidArgumentError(fmt::format("no {} has a member '{}'", manifest_.row_word, columns_.label));
  RETURN_IF_ERROR(FinishLabels(labels_, &manifest_));
  return std::move(manifest_);
}

}  // namespace

absl::StatusOr<Manifest> ParseJsonLinesManifest(std::string_view text, bool array, const ManifestColumns& columns,
                                                ManifestSink each) {
  return JsonLinesManifest(columns, each, array).Read(text);
}

}  // namespace millrace
