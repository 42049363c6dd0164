#pragma once

#include <cstdint>
#include <stop_token>
#include <vector>

#include "base/status.h"
#include "dataset/dataset_place.h"
#include "dataset/index.h"
#include "dataset/sample_objects.h"

namespace millrace {

/// Returns how many samples each of these shards has, as notes of other programs say. They are the index JSON of wids
/// beside tar shards, and the index.json of MDS. Empty if there are none, or if a shard is not in them. The
/// numbers may be wrong: nobody has read the shards. `listing` has listed the shards to its end. Blocking; Cancelled
/// soon after a stop is requested.
absl::StatusOr<std::vector<uint64_t>> FindShardCounts(const DatasetPlace& data,
                                                      const std::vector<IndexedObject>& shards,
                                                      const SampleObjects& listing, const std::stop_token& stop);

}  // namespace millrace
