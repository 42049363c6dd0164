#include "shard/manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/bytes.h"
#include "base/foreign_bytes.h"
#include "base/number.h"
#include "base/status.h"
#include "base/utf8.h"
#include "shard/coco.h"
#include "shard/csv_reader.h"
#include "shard/field_value.h"
#include "shard/json_array_manifest.h"
#include "shard/json_records.h"
#include "shard/label_kinds.h"
#include "shard/number_type.h"
#include "shard/sample_name.h"

namespace millrace {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kPathNames[] = {"path",      "file",       "filename", "file_name",  "filepath",
                                           "file_path", "key",        "image",    "image_path", "uri",
                                           "url",       "source-ref", "s3_uri"};
constexpr std::string_view kKeyNames[] = {"key", "__key__", "id", "image_id", "sample"};
constexpr std::string_view kLabelNames[] = {"cls", "label", "class"};
constexpr size_t kMaxLineBytes = 1 << 20;
constexpr size_t kMaxColumns = 1 << 16;
constexpr int kMaxLineDepth = 100;  // of JSON
constexpr std::string_view kLineWord = "line";
constexpr std::string_view kEntryWord = "entry";

std::string Lower(std::string_view text) {
  return absl::AsciiStrToLower(ToAbsl(text));
}

// The first of `wanted` that there is among `names`.
template <size_t N>
std::optional<size_t> FirstOf(const std::string_view (&wanted)[N], const std::vector<std::string>& names) {
  for (const std::string_view name : wanted) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (Lower(names[i]) == name) return i;
    }
  }
  return std::nullopt;
}

// The place of the column of that name, or of the first of `usual`. nullopt if there is none of these; what is named
// must be there.
template <size_t N>
absl::StatusOr<std::optional<size_t>> FindColumn(const std::string& named, const std::string_view (&usual)[N],
                                                 const std::vector<std::string>& names) {
  if (named.empty()) return FirstOf(usual, names);
  const auto found = std::find(names.begin(), names.end(), named);
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  return absl::InvalidArgumentError(fmt::format("there is no '{}' among {}", named, fmt::join(names, ", ")));
}

// The column that names the object, or the sample.
absl::StatusOr<std::optional<size_t>> FindName(const ManifestColumns& columns, const std::vector<std::string>& names) {
  if (columns.rows == RowsName::kKeys && columns.path.empty()) {
    if (const std::optional<size_t> key = FirstOf(kKeyNames, names)) return key;
  }
  return FindColumn(columns.path, kPathNames, names);
}

// The delimiter of the only column, if it is another one than those that are looked for; "" if it is none.
std::string_view OtherDelimiter(std::string_view name) {
  for (const std::string_view delimiter : {"|", ";", "\t", ","}) {
    if (name.find(delimiter) != std::string_view::npos) return delimiter == "\t" ? "a tab" : delimiter;
  }
  return {};
}

// Says what a file is that is no text, or no table, by its first cell; "" if it may be one.
std::string_view NameOtherTable(std::string_view first) {
  if (first.starts_with("PK\x03\x04")) return "a workbook of Excel: save it as CSV";
  if (first.starts_with("\xd0\xcf\x11\xe0")) return "a workbook of an early Excel: save it as CSV";
  if (first.starts_with("PAR1")) return "a Parquet file: write it as CSV or as JSON lines";
  return NameForeignBytes(AsBytes(first));
}

// Advice that the names give on a file that is not read as it is meant; "" if there is none.
std::string AdviceOnHeader(const std::vector<std::string>& names) {
  if (const std::string_view other = NameOtherTable(names.front()); !other.empty())
    return fmt::format("; it begins as {}", other);
  if (names.front().find('\0') != std::string::npos) return "; it may be UTF-16 without a mark: save it as UTF-8";
  if (names.front().starts_with('#')) return "; the first line must have the names of the columns: remove comments";
  if (IsImageField(Lower(names.front().substr(names.front().rfind('.') + 1))) && names.front().find('.') > 0 &&
      names.front().find('.') != std::string::npos) {
    return "; the first line looks like a row: put the names of the columns before it";
  }
  const std::string_view delimiter = names.size() == 1 ? OtherDelimiter(names.front()) : std::string_view();
  if (delimiter.empty()) return "";
  return fmt::format(
      "; if columns are delimited by {}: CSV has commas or semicolons or tabs between columns, and TSV "
      "tabs alone",
      delimiter);
}

// What is missing, and how to say which one it is.
std::string NoName(const ManifestColumns& columns, std::string_view of, const std::vector<std::string>& names) {
  if (columns.rows == RowsName::kObjects) {
    return fmt::format(
        "none of the {} ({}) names the objects; call that one 'path', or say which one it is: `millrace "
        "index --path-column X`, in Python Dataset(uri, path_column=\"X\")",
        of, fmt::join(names, ", "));
  }
  return fmt::format(
      "none of the {} ({}) is the key of the samples; call that one 'key', or say which one it is: "
      "--key-column X, in Python Labels(uri, key_column=\"X\")",
      of, fmt::join(names, ", "));
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

// A name that differs in case only would be a second label, or a second field `cls`.
absl::Status CheckLabelName(const std::vector<std::string>& names, size_t label, uint64_t line,
                            std::string_view word = "line") {
  const std::string wanted = Lower(names[label]);
  for (size_t i = 0; i < names.size(); ++i) {
    if (i == label || Lower(names[i]) != wanted) continue;
    return WrongLine(line,
                     fmt::format("'{}' and '{}' may both be the label; rename one", names[std::min(i, label)],
                                 names[std::max(i, label)]),
                     word);
  }
  return absl::OkStatus();
}

absl::Status FinishLabels(const LabelKinds& labels, Manifest* manifest) {
  manifest->float_labels = labels.AreFloats();
  manifest->numeric_labels = labels.AllWhole();
  const LabelKinds::Kind none = labels.NoLabels();
  manifest->nan_labels = {.count = none.count, .line = none.line, .first = none.first};
  return labels.Check();
}

// ---- CSV

class CsvManifest {
 public:
  CsvManifest(std::string_view text, char delimiter, const ManifestColumns& columns, ManifestSink each)
      : reader_(text, delimiter, columns.quotes != CsvQuotes::kText),
        columns_(columns),
        each_(each),
        labels_(columns.rows == RowsName::kKeys) {}

  absl::StatusOr<Manifest> Read();

 private:
  // What the cells of a column are, all together.
  struct CellTypes {
    bool all_int = true;
    bool all_float = true;
    bool any_number = false;
    bool any_missing = false;  // a word for what is missing: among numbers no value

    bool AreNumbers() const { return (all_int || all_float) && (any_number || !any_missing); }
  };

  absl::Status ReadHeader();
  absl::Status CheckNames() const;
  void NumberColumns();
  absl::Status TakeRow(const std::vector<std::string>& cells);
  absl::Status CheckText(size_t place, std::string_view cell) const;

  CsvReader reader_;
  const ManifestColumns& columns_;
  const ManifestSink each_;
  std::vector<std::string> names_;
  size_t path_ = 0;
  std::optional<size_t> label_;
  std::vector<size_t> places_;     // of the manifest's columns, among names_
  std::vector<CellTypes> types_;   // of the manifest's columns
  std::vector<ManifestCell> row_;  // reused
  LabelKinds labels_;
  Manifest manifest_;
};

absl::Status CsvManifest::CheckText(size_t place, std::string_view cell) const {
  if (FirstNotUtf8(cell) == cell.size()) return absl::OkStatus();
  return WrongLine(reader_.line(), fmt::format("column {}: no UTF-8 text; save the manifest as UTF-8", place + 1));
}

absl::Status CsvManifest::CheckNames() const {
  for (size_t i = 0; i < names_.size(); ++i) {
    RETURN_IF_ERROR(CheckText(i, names_[i]));
    if (names_[i].empty()) continue;  // pandas writes its index so, and spreadsheets what is empty
    if (names_[i].size() > kMaxNameBytes)
      return WrongLine(reader_.line(), fmt::format("column {} has a very long name", i + 1));
    const auto end = names_.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(names_.begin(), end, names_[i]) != end)
      return WrongLine(reader_.line(), fmt::format("column {}: a second one named '{}'", i + 1, names_[i]));
  }
  return absl::OkStatus();
}

absl::Status CsvManifest::ReadHeader() {
  ASSIGN_OR_RETURN(const bool any, reader_.Next(&names_));
  if (!any) return absl::InvalidArgumentError("it is empty; a header with the names of the columns comes first");
  for (std::string& name : names_) name = std::string(Trim(name));
  if (Lower(names_.front()).starts_with("sep="))
    return WrongLine(reader_.line(), "it says the delimiter to Excel, and no names of columns; remove this line");
  if (const std::string_view other = NameOtherTable(names_.front());
      !other.empty() && FirstNotUtf8(names_.front()) < names_.front().size()) {
    return WrongLine(reader_.line(), fmt::format("it begins as {}", other));
  }
  RETURN_IF_ERROR(CheckNames());
  ASSIGN_OR_RETURN(const std::optional<size_t> path, FindName(columns_, names_));
  if (!path) return WrongLine(reader_.line(), NoName(columns_, "columns", names_) + AdviceOnHeader(names_));
  path_ = *path;
  ASSIGN_OR_RETURN(label_, FindColumn(columns_.label, kLabelNames, names_));
  if (label_ == path_) return absl::InvalidArgumentError("one column cannot be both the path and the label");
  manifest_.has_labels = label_.has_value();
  if (label_ && columns_.label.empty()) RETURN_IF_ERROR(CheckLabelName(names_, *label_, reader_.line()));
  NumberColumns();
  return absl::OkStatus();
}

// By name, so that rows need no sorting.
void CsvManifest::NumberColumns() {
  for (size_t i = 0; i < names_.size(); ++i) {
    if (i != path_ && i != label_ && !names_[i].empty()) places_.push_back(i);
  }
  std::sort(places_.begin(), places_.end(), [this](size_t a, size_t b) { return names_[a] < names_[b]; });
  for (const size_t place : places_) manifest_.columns.push_back({.name = names_[place], .encoding = encoding::kText});
  types_.resize(places_.size());
}

absl::Status CsvManifest::TakeRow(const std::vector<std::string>& cells) {
  const uint64_t line = reader_.line();
  // Spreadsheets write such lines where rows were cleared.
  if (std::all_of(cells.begin(), cells.end(), [](const std::string& cell) { return Trim(cell).empty(); }))
    return absl::OkStatus();
  if (cells.size() != names_.size())
    return WrongLine(line, fmt::format("{} cells, and the header has {} columns", cells.size(), names_.size()));
  if (cells[path_].empty()) return WrongLine(line, fmt::format("column {}: no path", path_ + 1));
  ManifestRow row{.path = cells[path_], .line = line, .label = {}, .cells = {}};
  if (label_) {
    RETURN_IF_ERROR(CheckText(*label_, cells[*label_]));
    row.label = Trim(cells[*label_]);
    labels_.Add(row.label, line);
  }
  row_.clear();
  for (size_t column = 0; column < places_.size(); ++column) {
    const std::string& cell = cells[places_[column]];
    const std::string_view trimmed = Trim(cell);
    if (trimmed.empty()) continue;
    CellTypes& types = types_[column];
    if (IsMissingWord(trimmed)) {
      types.any_missing = true;
    } else {
      types.any_number = true;
      types.all_int = types.all_int && IsIntText(trimmed);
      types.all_float = types.all_float && IsFloatCell(trimmed);
    }
    if (!types.all_int && !types.all_float) RETURN_IF_ERROR(CheckText(places_[column], cell));
    row_.push_back({.column = static_cast<uint32_t>(column), .text = cell});
  }
  row.cells = row_;
  return each_(manifest_, row);
}

absl::StatusOr<Manifest> CsvManifest::Read() {
  RETURN_IF_ERROR(ReadHeader());
  std::vector<std::string> cells;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, reader_.Next(&cells));
    if (!more) break;
    RETURN_IF_ERROR(TakeRow(cells));
  }
  RETURN_IF_ERROR(FinishLabels(labels_, &manifest_));
  for (size_t i = 0; i < types_.size(); ++i) {  // now that all cells of a column are known
    if (types_[i].AreNumbers()) manifest_.columns[i].encoding = types_[i].all_int ? encoding::kInt : encoding::kFloat;
  }
  return std::move(manifest_);
}

// ---- JSON

// What is nested deeper than anybody means counts as malformed.
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

// Whether a member beside X-metadata is a class, as Ground Truth writes it, and no box, mask or list.
bool IsClassAttribute(const Json& value, const Json& metadata) {
  if (!metadata.is_object()) return false;
  const auto type = metadata.find("type");
  if (type == metadata.end() || !type->is_string()) return value.is_number_integer();
  return type->get_ref<const std::string&>().ends_with("-classification") &&
         (value.is_number_integer() || value.is_string());
}

// The names of all such members.
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
  /// `array`: of the objects, in place of lines.
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
  std::vector<std::pair<uint32_t, std::string>> values_;  // likewise
  std::vector<ManifestCell> row_;                         // likewise
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

// All digits of a whole number that is too large for 64 bits, which the parser takes for a float.
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
    return Wrong(line, fmt::format("the label '{}' is neither text nor a whole number; if it is no class, rename it: "
                                   "it is a field then",
                                   name));
  }
  label_ = value.is_string() ? std::string(Trim(value.get_ref<const std::string&>())) : NumberText(value);
  labels_.Add(label_, line, value.is_string());
  return absl::OkStatus();
}

// The same in all rows, so that their order means nothing.
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
  const absl::StatusOr<std::optional<size_t>> found = FindName(columns_, names);
  if (!found.ok()) return Wrong(line, ToStd(found.status().message()));
  const std::optional<size_t> path = *found;
  if (columns_.rows == RowsName::kKeys && !path) return Wrong(line, NoName(columns_, "members", names));
  const bool is_number = columns_.rows == RowsName::kKeys && path && json[names[*path]].is_number_integer();
  if (!path || (!json[names[*path]].is_string() && !is_number)) {
    return Wrong(line, fmt::format("none of its members ({}) names an object; call that one 'path', or 'source-ref'",
                                   fmt::join(names, ", ")));
  }
  std::optional<size_t> label;
  if (columns_.label.empty()) {
    label = FirstOf(kLabelNames, names);
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

bool IsWholeNumber(std::string_view label) {
  return IsIntText(label) && label != "-0";
}

std::string ManifestValueText(const ManifestColumn& column, std::string_view text) {
  if (column.encoding == encoding::kInt) return std::string(Trim(text));
  if (column.encoding != encoding::kFloat) return std::string(text);
  const std::optional<double> value = ParseFloatCell(Trim(text));
  return value ? ToDecimal(*value) : std::string(text);
}

bool IsManifestValue(const ManifestColumn& column, std::string_view text) {
  return (column.encoding != encoding::kInt && column.encoding != encoding::kFloat) || !IsMissingWord(Trim(text));
}

std::optional<ManifestFormat> ManifestFormatOf(std::string_view name) {
  const std::string lower = Lower(name);
  if (lower.ends_with(".csv")) return ManifestFormat::kCsv;
  if (lower.ends_with(".tsv")) return ManifestFormat::kTsv;
  for (const std::string_view ending : {".jsonl", ".ndjson", ".manifest", ".json"}) {
    if (lower.ends_with(ending)) return ManifestFormat::kJson;
  }
  return std::nullopt;
}

absl::StatusOr<Manifest> ParseManifest(ManifestFormat format, std::string_view text, const ManifestColumns& columns,
                                       ManifestSink each) {
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    return absl::InvalidArgumentError(
        "it is UTF-16, as Excel's 'Unicode Text' and PowerShell write it; save it as UTF-8 ('CSV UTF-8')");
  }
  if (format != ManifestFormat::kJson) {
    const char delimiter =
        format == ManifestFormat::kTsv ? '\t' : CsvDelimiterOf(text, columns.quotes != CsvQuotes::kText);
    return CsvManifest(text, delimiter, columns, each).Read();
  }
  if (columns.quotes == CsvQuotes::kText)
    return absl::InvalidArgumentError("only in CSV and TSV quotes may be text (--no-csv-quotes, csv_quotes=False)");
  text = WithoutByteOrderMark(text);
  const size_t start = text.find_first_not_of(" \t\r\n");
  const bool array = start != std::string_view::npos && text[start] == '[';
  if (!array && columns.label.empty() && columns.path.empty() && IsCoco(text)) return ParseCoco(text, each);
  const bool records = array && HoldsRecords(text);
  if (!array || records) return JsonLinesManifest(columns, each, records).Read(text);
  if (columns.rows == RowsName::kKeys) {
    return absl::InvalidArgumentError(
        "it is an array, but not of objects with the key and the label of a sample each, as pandas' "
        "to_json(orient=\"records\") writes them");
  }
  if (columns.path.empty() && columns.label.empty()) return ParseJsonArrayManifest(text, each);
  return absl::InvalidArgumentError("it is an array of names, which has no columns to choose from");
}

}  // namespace millrace
