#pragma once

#include <string_view>

#include "base/status.h"
#include "dataset/dataset.h"
#include "dataset/index_builder.h"

namespace millrace {

/// Builds the index of a data set as Dataset::Open does if there is none, and writes it to the place that `open_index`
/// makes. Millrace does not look for it there by itself. All of `options` count except rebuild. Blocking.
absl::StatusOr<BuiltIndex> BuildIndexFile(Runtime& runtime, Stores& stores, std::string_view uri,
                                          OpenIndexFn open_index, const OpenOptions& options);

}  // namespace millrace
