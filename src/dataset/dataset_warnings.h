#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "base/status.h"
#include "dataset/dataset_place.h"
#include "dataset/index.h"

namespace millrace {

/// Sentences on signs in the names of shards and classes that the data set is not the one that its user means. Signs
/// are those of shard_names.h, and raw objects in the folders train and val, which become classes. Looks up every
/// object.
absl::StatusOr<std::vector<std::string>> WarningsOfNames(const DatasetPlace& place, const Index& index);

/// A sentence for keys that come again, if there are some. Memory and errors: FindDuplicateKeys.
absl::StatusOr<std::vector<std::string>> WarningsOfKeys(const Index& index, MemoryBudget& memory,
                                                        const std::stop_token& stop);

}  // namespace millrace
