#pragma once

#include <string_view>

#include "shard/manifest.h"

namespace millrace {

/// Reads JSON objects, one a line, or with `array` those of one JSON array. Errors are those of ParseManifest.
absl::StatusOr<Manifest> ParseJsonLinesManifest(std::string_view text, bool array, const ManifestColumns& columns,
                                                ManifestSink each);

}  // namespace millrace
