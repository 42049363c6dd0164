#pragma once

#include <stop_token>

#include "base/status.h"
#include "pipeline/loader_plan.h"

namespace millrace {

/// Reads some classes of tar shards, and parses them as batches will: those that the index does not count, since they
/// are no plain numbers. So a name among numbers is reported before the first epoch. Reads at most 16 of a data set,
/// and nothing if the index counts the class of each sample. Blocking. Errors are those of ParseLabel, with the
/// sample's name, of the store, and of the index, and Cancelled soon after a stop is requested.
absl::Status CheckClasses(const LoaderPlan& plan, const std::stop_token& stop);

}  // namespace millrace
