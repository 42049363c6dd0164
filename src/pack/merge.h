#pragma once

#include <memory>
#include <stop_token>
#include <vector>

#include "base/memory_budget.h"
#include "base/status.h"
#include "dataset/index_writer.h"
#include "pack/destination.h"
#include "pack/fragment.h"
#include "shard/mds_format.h"

namespace millrace {

/// Holds the index of a destination, to be Finished.
struct MergedIndex {
  std::unique_ptr<IndexWriter> index;
  std::vector<MdsShardEntry> shards;  // in order
  std::vector<SkippedSample> skipped;
};

/// Merges the fragments of all shards. The result does not depend on the machine that merges. Memory: some fragments,
/// out of the budget, and what IndexWriter needs. NotFound if a fragment is gone: another run has finished the job,
/// or has started it again.
absl::StatusOr<MergedIndex> MergeFragments(const PackDestination& destination, MemoryBudget& memory,
                                           const std::stop_token& stop);

/// Has the totals of the shards that are `part` modulo `parts`.
struct PartSum {
  uint64_t samples = 0;
  uint64_t shard_bytes = 0;
  std::vector<SkippedSample> skipped;  // in order
};

/// Sums up the shards that have a fragment. Memory and NotFound as above.
absl::StatusOr<PartSum> SumFragments(const PackDestination& destination, uint64_t part, uint64_t parts,
                                     MemoryBudget& memory, const std::stop_token& stop);

}  // namespace millrace
