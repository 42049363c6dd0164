#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "base/status.h"
#include "dataset/dataset_place.h"
#include "dataset/index.h"
#include "net/runtime.h"
#include "shard/manifest.h"
#include "store/stores.h"

namespace millrace {

/// A file of labels: CSV, TSV or JSON lines (shard/manifest.h, RowsName::kKeys). For example, the row `7,cat` gives the
/// sample `7` the label `cat`. Rows give samples, by their keys, a label and further values. The label becomes the
/// field `cls`, as in a manifest: whole numbers, floats, or names, which are numbered in bytewise order. The other
/// columns become fields of their names. They replace the samples' own fields of these names, in all samples.
struct LabelsFile {
  std::string uri;
  std::string key_column;    // "": by its usual names
  std::string label_column;  // "": by its usual names
  bool quotes = true;        // around cells of CSV and TSV; else they are text

  ManifestColumns columns() const {
    return {.path = key_column,
            .label = label_column,
            .rows = RowsName::kKeys,
            .quotes = quotes ? CsvQuotes::kMarks : CsvQuotes::kText};
  }
};

struct LabelledIndex {
  std::unique_ptr<Index> index;
  std::string uri;
  uint64_t id = 0;  // of the index without labels, the version of the file and the columns; never 0
};

/// Makes the index `base` of `data` with the contents of the file. The result has the samples, numbers, objects and
/// fingerprint of `base`, since neither bytes nor order depend on labels. Samples say whether they are in the file
/// (IndexedSample::in_labels_file). It is an artifact `labels-ID`, made once for each version of the file.
///
/// Keys of the file are those of samples as they are written. If no key of the file is one, they may be names of files:
/// without the extension, and without the URI of the data set in front. A warning reports rows whose keys are no
/// samples. Memory to make it: the file and LabelRows, out of the runtime's budget.
///
/// Errors:
/// - InvalidArgument, with the file's URI and line: malformed text, a key that is there twice, no key that is a sample,
///   no columns;
/// - NotFound: no such file;
/// - ResourceExhausted; Cancelled soon after a stop; those of the stores.
absl::StatusOr<LabelledIndex> OpenLabelledIndex(Runtime& runtime, Stores& stores, const DatasetPlace& data,
                                                const Index& base, const LabelsFile& file,
                                                const std::string& cache_folder, const std::stop_token& stop);

}  // namespace millrace
