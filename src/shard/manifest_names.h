#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "shard/label_kinds.h"
#include "shard/manifest.h"

namespace millrace {

/// Returns the name in small letters, by which names of columns are compared.
std::string LowerName(std::string_view name);

/// Returns the text without blanks, tabs and ends of lines around it.
std::string_view TrimCell(std::string_view text);

/// Returns the column that names the object, or the sample (RowsName::kKeys). Returns nullopt if none has one of the
/// usual names; InvalidArgument if the column that `columns` says is missing.
absl::StatusOr<std::optional<size_t>> FindNameColumn(const ManifestColumns& columns,
                                                     const std::vector<std::string>& names);

/// Finds the column of the label, in the same way.
absl::StatusOr<std::optional<size_t>> FindLabelColumn(const ManifestColumns& columns,
                                                      const std::vector<std::string>& names);

/// Returns the first of the usual names of a label, or nullopt if none is there.
std::optional<size_t> UsualLabelColumn(const std::vector<std::string>& names);

/// Returns the message for rows in which nothing names the object, or the sample. `of` is the word for `names`:
/// "columns".
std::string NoNameColumn(const ManifestColumns& columns, std::string_view of, const std::vector<std::string>& names);

/// Returns InvalidArgument if another name differs from that of the label in case only: it would be a second label, or
/// a second field `cls`.
absl::Status CheckLabelName(const std::vector<std::string>& names, size_t label, uint64_t line,
                            std::string_view word = "line");

/// Call this after the last row: it gives the manifest the kind of its labels. Returns InvalidArgument if they are
/// mixed.
absl::Status FinishLabels(const LabelKinds& labels, Manifest* manifest);

}  // namespace millrace
