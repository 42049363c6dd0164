#pragma once

#include <stop_token>
#include <vector>

#include "base/memory_budget.h"
#include "base/status.h"
#include "dataset/index_writer.h"
#include "pack/destination.h"
#include "pack/fragment.h"

namespace millrace {

/// Merges the fragments of all shards into the index of the destination, and appends what they say was skipped. The
/// same bytes whoever does it. Memory: some fragments, out of the budget, and what IndexWriter needs. NotFound when a
/// fragment is gone: somebody else has finished the job, or has started it anew.
absl::StatusOr<IndexSummary> MergeFragments(const PackDestination& destination, MemoryBudget& memory,
                                            std::vector<SkippedSample>* skipped, const std::stop_token& stop);

}  // namespace millrace
