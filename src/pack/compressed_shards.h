#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/decompressor.h"
#include "base/status.h"
#include "dataset/dataset_place.h"
#include "dataset/skipped_objects.h"
#include "pack/parquet.h"

namespace millrace {

/// The shards of a data set that are compressed as a whole, and its Parquet files: those that Unpack takes (unpack.h).
struct CompressedShards {
  std::vector<ObjectInfo> objects;  // the shards, and plain ones and index.json of MDS among them; keys of the store
  uint64_t bytes = 0;               // of all
  std::string id;                   // hash of keys below the data's URI, sizes and ETags
  SkippedObjects skipped;           // what lies beside them, and holds no samples
};

/// Looks for them. Returns nullopt if the first sample is not in such a shard, or if there are none. Documents
/// (IsDocument) and side files (IsCompanion) that lie beside them are passed over. InvalidArgument, with the names, for
/// other samples that lie beside them, for compressions other than gzip and zstd, and for keys that no folder can hold.
/// Errors of the store.
absl::StatusOr<std::optional<CompressedShards>> FindCompressedShards(const DatasetPlace& data,
                                                                     const std::stop_token& stop);

/// Returns the compression that the end of a name tells; nullopt for others than gzip and zstd.
std::optional<Compression> CompressionOf(std::string_view key);
bool IsParquet(std::string_view key);
/// Returns the name of the unpacked file; "" for a file that is not compressed. A Parquet file keeps its name.
std::string PlainName(std::string_view key);
/// Returns the name of the copy of a Parquet file in the scratch folder.
std::string ParquetCopyOf(const std::string& key);

}  // namespace millrace
