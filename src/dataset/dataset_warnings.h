#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "base/status.h"
#include "dataset/dataset_place.h"
#include "dataset/index.h"

namespace millrace {

/// Signs in the names of shards and classes that the data set is not what its user means (shard_names.h; raw objects in
/// the folders train and val, which become classes): sentences. Looks up every object.
absl::StatusOr<std::vector<std::string>> WarningsOfNames(const DatasetPlace& place, const Index& index);

/// A sentence for keys that come again, if there are some. Memory and errors: FindDuplicateKeys.
absl::StatusOr<std::vector<std::string>> WarningsOfKeys(const Index& index, MemoryBudget& memory,
                                                        const std::stop_token& stop);

}  // namespace millrace
