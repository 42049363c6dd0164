#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/status.h"

namespace millrace {

/// Says how a manifest is written: a list of objects, one sample each, with their labels and further values.
enum class ManifestFormat : uint8_t {
  kCsv,   // a header, then a record for each object; cells between commas, semicolons or tabs (CsvDelimiterOf)
  kTsv,   // the same, always between tabs
  kJson,  // a JSON object for each, one a line, or a JSON array of them; or a JSON array {"prefix": "..."}, "name",
          // "name" (SageMaker)
};

/// Finds the format by the end of its name: .csv; .tsv; .jsonl, .ndjson, .manifest, .json.
std::optional<ManifestFormat> ManifestFormatOf(std::string_view name);

/// Describes a column, or the members of one name and type: kept once for all its values.
struct ManifestColumn {
  std::string name;
  std::string_view encoding;  // kInt, kFloat, kText or kJson of field_value.h
};

struct ManifestCell {
  uint32_t column = 0;    // of Manifest::columns
  std::string_view text;  // as it is written: ManifestValueText() makes it a value
};

/// Holds views into memory of the parser.
struct ManifestRow {
  std::string_view path;                // as it is written
  uint64_t line = 0;                    // from 1
  std::string_view label;               // without blanks around it; "": none
  std::span<const ManifestCell> cells;  // in bytewise order of names, without the path and the label
};

/// Labels that are none, although there is a text.
struct NanLabels {
  uint64_t count = 0;
  uint64_t line = 0;  // of the first
  std::string first;  // as it is written
};

/// Holds the properties of all rows together, known after the last row.
struct Manifest {
  std::string prefix;                   // before all paths; "" unless the manifest names one (which comes first)
  std::string_view row_word = "line";   // what ManifestRow::line counts: "entry" of an array
  std::vector<ManifestColumn> columns;  // those of a cell are there with it, but not their encodings
  bool has_labels = false;              // there is a column, or a member, for them
  bool numeric_labels = false;          // there are some, and all are whole numbers
  bool float_labels = false;            // there are some, all are numbers, and not all are whole (RowsName::kKeys)
  NanLabels nan_labels;                 // NaN among numbers (RowsName::kKeys): these rows have no label
};

/// Returns false if the cell says that there is no value: N/A and other words of pandas among numbers.
bool IsManifestValue(const ManifestColumn& column, std::string_view text);

/// Returns a cell of that column as the field's value.
std::string ManifestValueText(const ManifestColumn& column, std::string_view text);

/// Says what the rows of a manifest name.
enum class RowsName : uint8_t {
  kObjects,  // each is a sample
  kKeys,     // of samples of a data set that is there already: a file of labels
};

/// Says what quotes mean in CSV and TSV.
enum class CsvQuotes : uint8_t {
  kUsual,  // kMarks, unless there is an index already that says otherwise
  kMarks,  // around cells
  kText,   // text, as with Python's csv.QUOTE_NONE
};

/// Names the columns (or members) of the path and of the label; "": by their usual names.
struct ManifestColumns {
  std::string path;  // or of the key
  std::string label;
  RowsName rows = RowsName::kObjects;
  CsvQuotes quotes = CsvQuotes::kUsual;
};

/// Returns whether the label is a whole number as it is usually written.
bool IsWholeNumber(std::string_view label);

using ManifestSink = absl::FunctionRef<absl::Status(const Manifest&, const ManifestRow&)>;

/// Reads a manifest, and hands each row to the sink, whose error ends it. `columns` may name the columns (or members)
/// of the path and of the label. Otherwise they are found by name:
///   - the path is the first of: path, file, filename, file_name, filepath, file_path, key, image, image_path, uri,
///     url, source-ref, s3_uri;
///   - the label is the first of: cls, label, class (whatever the case of letters).
///
/// If JSON has no such member, the label is SageMaker's label attribute. That is the one member X beside an object
/// X-metadata that is a class; it is a value, too.
///
/// The values of a column are int if all of them are whole numbers as they are usually written. They are float if all
/// are numbers (also NaN and inf), else text. JSON has types of its own, and a value that is neither number nor text is
/// JSON. Empty cells (in CSV also those of blanks) and null are not values. N/A and the like (IsManifestValue) are not
/// values among numbers. Lines of CSV whose cells are all empty are not rows. A JSON object with COCO's lists of images
/// and annotations is read as coco.h says.
///
/// If rows name keys, the column of the key is the first that there is of: key, __key__, id, image_id, sample, and then
/// those above. Labels may be floats then, and NaN among numbers is not a label.
///
/// Returns InvalidArgument, with line and column, for:
///   - malformed text, or text that is not UTF-8 (except paths), and a row without a path;
///   - labels that are neither whole numbers nor texts (1.5, 007);
///   - labels of which some are numbers and others texts;
///   - columns that differ from the label's in the case of letters only;
///   - rows whose label attributes are not the same ones;
///   - `columns` that do not exist.
absl::StatusOr<Manifest> ParseManifest(ManifestFormat format, std::string_view text, const ManifestColumns& columns,
                                       ManifestSink each);

}  // namespace millrace
