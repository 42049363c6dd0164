#pragma once

#include <string_view>

#include "shard/manifest.h"

namespace millrace {

/// Parses SageMaker's manifest file: [{"prefix": "s3://bucket/folder/"}, "name", "name"]. Errors are those of
/// ParseManifest.
absl::StatusOr<Manifest> ParseJsonArrayManifest(std::string_view text, ManifestSink each);

}  // namespace millrace
