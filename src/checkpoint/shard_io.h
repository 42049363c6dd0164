#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory_budget.h"
#include "checkpoint/records.h"
#include "store/object_store.h"

/// The bytes of checkpoints, in and out of a store, in pieces of 8 MiB, many at a time. Blocking.

namespace millrace {

/// A shard that is to be written: its bytes are those of the spans, one behind the other.
struct ShardBytes {
  std::string name;
  std::vector<ByteSpan> spans;

  uint64_t Size() const;
};

/// Writes shards below `folder` ("" or ending with '/'), eight pieces at a time. A piece that lies in one span is sent
/// straight from there; what lies in several is copied together first: at most eight pieces at once. Returns when no
/// piece is in flight any more; after an error some shards may have been written. Cancelled soon after a stop.
absl::StatusOr<std::vector<CheckpointShard>> WriteShards(ObjectStore& store, const std::string& folder,
                                                         const std::vector<ShardBytes>& shards,
                                                         const std::stop_token& stop);

/// Reads shards of `folder` and compares all bytes with their checksums: DataLoss if the store keeps delivering others,
/// OutOfRange or NotFound if some are missing. `into` has memory for each shard, of just its size; or it is empty: then
/// the bytes are only verified. Cancelled soon after a stop.
absl::Status ReadShards(ObjectStore& store, MemoryBudget& memory, const std::string& folder,
                        const std::vector<CheckpointShard>& shards, const std::vector<MutableByteSpan>& into,
                        const std::stop_token& stop);

}  // namespace millrace
