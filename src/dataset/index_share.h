#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "dataset/dataset.h"
#include "dataset/index_builder.h"

/// Lets several processes, on any machines, build the index of shards together. Each reads some shards, and keeps them
/// as parts of the index (index_parts.h). All functions are blocking.

namespace millrace {

/// Reports on the share of one process.
struct IndexShareReport {
  IndexSummary summary;  // of the shards of the share; index_bytes means nothing
  BuildReport report;    // of the shards of the share
  uint64_t missing = 0;  // shards that nobody has indexed yet
  /// True if no shard is missing, and the index beside the data lacks some of them. Dataset::Open with `rebuild` makes
  /// it whole without reading shards again, except damaged ones.
  bool to_merge = false;
};

/// Indexes those shards of the share (OpenOptions::share) that are in no part and no older index, and keeps them beside
/// the data. The other options that count are skip_bad, progress, cache_folder, part_bytes and stop. Errors are those
/// of Dataset::Open; InvalidArgument for data that are no shards, ResourceExhausted if a part does not fit into the
/// budget, PermissionDenied and others if parts cannot be put beside the data.
absl::StatusOr<IndexShareReport> BuildIndexShare(Runtime& runtime, Stores& stores, std::string_view uri,
                                                 const OpenOptions& options);

/// Indexes shards until no shard is missing. Those of the share come first, and then those that the other processes
/// have not indexed by then. So it does not depend on other processes. It does nothing for data that are no shards. If
/// parts cannot be kept, or shards change, some may be missing at the end. The options and errors are those of
/// BuildIndexShare. With `among` only these shards count.
absl::Status BuildMissingShards(Runtime& runtime, Stores& stores, const DatasetPlace& data, const OpenOptions& options,
                                const ChooseShard& among = nullptr);

}  // namespace millrace
