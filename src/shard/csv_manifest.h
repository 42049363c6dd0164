#pragma once

#include <string_view>

#include "shard/manifest.h"

namespace millrace {

/// Reads a table: a header with names, then a record for each sample. Errors are those of ParseManifest.
absl::StatusOr<Manifest> ParseCsvManifest(std::string_view text, char delimiter, const ManifestColumns& columns,
                                          ManifestSink each);

}  // namespace millrace
