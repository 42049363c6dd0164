#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millrace {

/// Represents a column of a manifest with paths, and the field that their objects are.
struct PathColumn {
  std::string field;
  std::string column;
};

/// Parses ManifestColumns::path. NAME=COLUMN,NAME=COLUMN names several columns, whose objects are one sample. Anything
/// else is the name of one column, and the result is empty then. InvalidArgument for a name that is empty, too long,
/// `cls` or there twice, and for more columns than objects can be joined.
absl::StatusOr<std::vector<PathColumn>> ParsePathColumns(std::string_view text);

}  // namespace millrace
