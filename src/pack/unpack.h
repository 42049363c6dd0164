#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"
#include "dataset/dataset.h"
#include "net/runtime.h"
#include "store/stores.h"

/// Shards that are compressed as a whole (train.tar.gz, shard.00000.mds.zstd), and Parquet files: their samples cannot
/// be read singly. So they are decompressed, or made into MDS shards (parquet.h), in a scratch folder before they are
/// packed.

namespace millrace {

struct PackedShards {
  std::vector<ObjectInfo> objects;  // the shards, and plain ones and index.json of MDS among them; keys of the store
  uint64_t bytes = 0;               // of all
  std::string id;                   // hash of keys below the data's URI, sizes and ETags
};

/// Looks for them. nullopt when the first shard or sample is none of these. InvalidArgument, with the names, for
/// samples that lie beside them, and for compressions other than gzip and zstd. Errors of the store.
absl::StatusOr<std::optional<PackedShards>> FindPackedShards(const Location& data, const std::stop_token& stop);

/// Writes their contents below `scratch`, which is a folder, under their names without the ending of the compression;
/// those that are there already, from a run that was ended, are kept: a scratch folder must belong to the `id`. Reads
/// in parallel, and verifies by the checksums of the store and of the compressed streams. Memory: out of the runtime's
/// budget, and up to 128 MiB for a stream of zstd that asks for it.
absl::Status Unpack(Runtime& runtime, const Location& data, const PackedShards& shards, const Location& scratch,
                    const ProgressFn& progress, const std::stop_token& stop);

}  // namespace millrace
