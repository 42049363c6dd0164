#include "shard/manifest.h"

#include "base/number.h"
#include "base/status.h"
#include "base/utf8.h"
#include "shard/coco.h"
#include "shard/csv_manifest.h"
#include "shard/csv_reader.h"
#include "shard/field_value.h"
#include "shard/json_array_manifest.h"
#include "shard/json_lines_manifest.h"
#include "shard/json_records.h"
#include "shard/manifest_names.h"
#include "shard/number_type.h"

namespace millrace {

bool IsWholeNumber(std::string_view label) {
  return IsIntText(label) && label != "-0";
}

std::string ManifestValueText(const ManifestColumn& column, std::string_view text) {
  if (column.encoding == encoding::kInt) return std::string(TrimCell(text));
  if (column.encoding != encoding::kFloat) return std::string(text);
  const std::optional<double> value = ParseFloatCell(TrimCell(text));
  return value ? ToDecimal(*value) : std::string(text);
}

bool IsManifestValue(const ManifestColumn& column, std::string_view text) {
  return (column.encoding != encoding::kInt && column.encoding != encoding::kFloat) || !IsMissingWord(TrimCell(text));
}

std::optional<ManifestFormat> ManifestFormatOf(std::string_view name) {
  const std::string lower = LowerName(name);
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
    return ParseCsvManifest(text, delimiter, columns, each);
  }
  if (columns.quotes == CsvQuotes::kText)
    return absl::InvalidArgumentError("only in CSV and TSV quotes may be text (--no-csv-quotes, csv_quotes=False)");
  text = WithoutByteOrderMark(text);
  const size_t start = text.find_first_not_of(" \t\r\n");
  const bool array = start != std::string_view::npos && text[start] == '[';
  if (!array && columns.label.empty() && columns.path.empty() && IsCoco(text)) return ParseCoco(text, each);
  const bool records = array && HoldsRecords(text);
  if (!array || records) return ParseJsonLinesManifest(text, records, columns, each);
  if (columns.rows == RowsName::kKeys) {
    return absl::InvalidArgumentError(
        "it is an array, but not of objects with the key and the label of a sample each, as pandas' "
        "to_json(orient=\"records\") writes them");
  }
  if (columns.path.empty() && columns.label.empty()) return ParseJsonArrayManifest(text, each);
  return absl::InvalidArgumentError("it is an array of names, which has no columns to choose from");
}

}  // namespace millrace
