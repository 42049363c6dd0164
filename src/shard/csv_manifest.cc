#include "shard/csv_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/foreign_bytes.h"
#include "base/number.h"
#include "base/utf8.h"
#include "shard/csv_reader.h"
#include "shard/field_value.h"
#include "shard/label_kinds.h"
#include "shard/manifest_names.h"
#include "shard/number_type.h"
#include "shard/sample_name.h"

namespace millrace {

namespace {

// Returns the delimiter of the only column, if it is another one than those that are looked for; "" if it is none.
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

// Returns advice that the names give on a file that is not read as it is meant; "" if there is none.
std::string AdviceOnHeader(const std::vector<std::string>& names) {
  if (const std::string_view other = NameOtherTable(names.front()); !other.empty())
    return fmt::format("; it begins as {}", other);
  if (names.front().find('\0') != std::string::npos) return "; it may be UTF-16 without a mark: save it as UTF-8";
  if (names.front().starts_with('#')) return "; the first line must have the names of the columns: remove comments";
  if (IsImageField(LowerName(names.front().substr(names.front().rfind('.') + 1))) && names.front().find('.') > 0 &&
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

class CsvManifest {
 public:
  CsvManifest(std::string_view text, char delimiter, const ManifestColumns& columns, ManifestSink each)
      : reader_(text, delimiter, columns.quotes != CsvQuotes::kText),
        columns_(columns),
        each_(each),
        labels_(columns.rows == RowsName::kKeys) {}

  absl::StatusOr<Manifest> Read();

 private:
  // Finds the common type of all cells of a column.
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
  for (std::string& name : names_) name = std::string(TrimCell(name));
  if (LowerName(names_.front()).starts_with("sep="))
    return WrongLine(reader_.line(), "it says the delimiter to Excel, and no names of columns; remove this line");
  if (const std::string_view other = NameOtherTable(names_.front());
      !other.empty() && FirstNotUtf8(names_.front()) < names_.front().size()) {
    return WrongLine(reader_.line(), fmt::format("it begins as {}", other));
  }
  RETURN_IF_ERROR(CheckNames());
  ASSIGN_OR_RETURN(const std::optional<size_t> path, FindNameColumn(columns_, names_));
  if (!path) return WrongLine(reader_.line(), NoNameColumn(columns_, "columns", names_) + AdviceOnHeader(names_));
  path_ = *path;
  ASSIGN_OR_RETURN(label_, FindLabelColumn(columns_, names_));
  if (label_ == path_) return absl::InvalidArgumentError("one column cannot be both the path and the label");
  manifest_.has_labels = label_.has_value();
  if (label_ && columns_.label.empty()) RETURN_IF_ERROR(CheckLabelName(names_, *label_, reader_.line()));
  NumberColumns();
  return absl::OkStatus();
}

// Numbers the columns by name, so that rows need no sorting.
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
  if (std::all_of(cells.begin(), cells.end(), [](const std::string& cell) { return TrimCell(cell).empty(); }))
    return absl::OkStatus();
  if (cells.size() != names_.size())
    return WrongLine(line, fmt::format("{} cells, and the header has {} columns", cells.size(), names_.size()));
  if (cells[path_].empty()) return WrongLine(line, fmt::format("column {}: no path", path_ + 1));
  ManifestRow row{.path = cells[path_], .line = line, .label = {}, .cells = {}};
  if (label_) {
    RETURN_IF_ERROR(CheckText(*label_, cells[*label_]));
    row.label = TrimCell(cells[*label_]);
    labels_.Add(row.label, line);
  }
  row_.clear();
  for (size_t column = 0; column < places_.size(); ++column) {
    const std::string& cell = cells[places_[column]];
    const std::string_view trimmed = TrimCell(cell);
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

}  // namespace

absl::StatusOr<Manifest> ParseCsvManifest(std::string_view text, char delimiter, const ManifestColumns& columns,
                                          ManifestSink each) {
  return CsvManifest(text, delimiter, columns, each).Read();
}

}  // namespace millrace
