#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/memory_budget.h"
#include "checkpoint/records.h"
#include "checkpoint/staging_memory.h"
#include "store/object_store.h"

/// These functions move the bytes of checkpoints in and out of a store, in pieces of some MiB, many at a time.
/// Blocking.

namespace millrace {

/// Has some bytes of a shard that is to be written.
struct ShardSpan {
  ShardSpan(ByteSpan in_memory) : bytes(in_memory), size(in_memory.size()) {}  // NOLINT: a span is one
  /// Takes bytes that come into memory only when their turn has come, as those of tensors on a device.
  ShardSpan(uint64_t length, std::function<absl::Status(uint64_t offset, MutableByteSpan into)> copy_out)
      : size(length), copy(std::move(copy_out)) {}

  ByteSpan bytes;
  uint64_t size;
  /// `copy` is null if `bytes` are the bytes of the span. Else it writes some of them, from `offset` of the span on,
  /// and is called in order.
  std::function<absl::Status(uint64_t offset, MutableByteSpan into)> copy;
};

/// Has a shard that is to be written: its bytes are those of the spans, one behind the other.
struct ShardBytes {
  std::string name;
  std::vector<ShardSpan> spans;

  uint64_t Size() const;
};

/// Bounds the pieces in flight that were copied together: 64 MiB, or one piece if that is larger (of shards above 640
/// GB on S3, where objects have 10,000 parts at most).
inline constexpr uint64_t kMaxStagedBytes = 64 << 20;

/// Writes shards below `folder` ("" or ending with '/'), 16 pieces at a time. A piece that is within one span is sent
/// straight from there. A piece that is in several spans, or comes into memory only now, is copied together first, to
/// memory of `staging`. Pieces have 8 MiB, or more in shards above 80 GB on S3. If a store takes pieces of any length,
/// it gets long spans as pieces of their own. Returns when no piece is in flight any more; after an error some shards
/// may have been written. Cancelled soon after a stop.
absl::StatusOr<std::vector<CheckpointShard>> WriteShards(ObjectStore& store, const std::string& folder,
                                                         const std::vector<ShardBytes>& shards, StagingMemory& staging,
                                                         const std::stop_token& stop);

/// Names some bytes of a shard, and memory for them.
struct ShardRange {
  size_t shard = 0;  // its place in the list of shards
  uint64_t offset = 0;
  MutableByteSpan into;  // its size is that of the range
};

/// Reads ranges of shards of `folder` in any order, and verifies them; ranges may overlap. Whole pieces that have a
/// checksum are read, so that each run of neighboring ranges costs up to two pieces more than it needs. Returns the
/// number of bytes that were read. DataLoss if the store keeps delivering other bytes, OutOfRange or NotFound if some
/// are missing. OutOfRange for a range that is not within its shard. Cancelled soon after a stop.
absl::StatusOr<uint64_t> ReadRanges(ObjectStore& store, MemoryBudget& memory, const std::string& folder,
                                    const std::vector<CheckpointShard>& shards, std::vector<ShardRange> ranges,
                                    const std::stop_token& stop);

/// Reads whole shards and verifies them, as ReadRanges does. `into` has memory for each shard, of just its size; or it
/// is empty: then the bytes are only verified.
absl::Status ReadShards(ObjectStore& store, MemoryBudget& memory, const std::string& folder,
                        const std::vector<CheckpointShard>& shards, const std::vector<MutableByteSpan>& into,
                        const std::stop_token& stop);

/// Copies shards, through this process, and verifies what is copied. Errors are those of reading and of writing.
absl::StatusOr<std::vector<CheckpointShard>> CopyShards(ObjectStore& from, const std::string& from_folder,
                                                        const std::vector<CheckpointShard>& shards, ObjectStore& to,
                                                        const std::string& to_folder, StagingMemory& staging,
                                                        MemoryBudget& memory, const std::stop_token& stop);

}  // namespace millrace
