#pragma once

#include <memory>

#include "dataset/dataset_place.h"
#include "dataset/index_builder.h"
#include "dataset/sample_objects.h"

namespace millrace {

/// Returns the objects that a build reads: those of the manifest, the shards that `only` chooses, or all. Their total
/// is that of the chosen shards. `data` and the manifest must outlive the result.
std::unique_ptr<ObjectSource> MakeListing(const DatasetPlace& data, const BuildOptions& options);

}  // namespace millrace
