#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"
#include "shard/mds_format.h"
#include "shard/shard_scanner.h"
#include "store/stores.h"

namespace millrace {

/// Checks the shards of an MDS data set against the index.json beside them. If the shards of a folder come one after
/// the other, its index.json is read once. Blocking; not thread-safe.
class MdsIndexes {
 public:
  explicit MdsIndexes(const Location& data, std::stop_token stop = {}) : data_(data), stop_(std::move(stop)) {}

  /// Returns a scanner of a shard that also computes the hashes that are in the index.json beside it. Its Finish gives
  /// DataLoss if one is not that of the bytes; all samples are doubtful then. `*hashed` is set if there are hashes that
  /// this host can compute; a warning names others. Errors are those of reading an existing index.json.
  absl::StatusOr<std::unique_ptr<ShardScanner>> ScannerFor(const std::string& key, bool* hashed);

  /// Returns the entry of a shard in the index.json beside it, valid until another folder is asked for. Null if there
  /// is none, or if the index.json cannot be read.
  const MdsShardEntry* Find(const std::string& key);

  /// Checks the shards against the index.json beside them, so that no shard is missing or left over. `indexes` are the
  /// keys of the index.json, `shards` those of the shards with their sizes; all are below the data set's URI. A shard
  /// without a size is known to be damaged, and may have any size. DataLoss names the first shard that is not as it is
  /// listed, or an index.json that is damaged. InvalidArgument names a shard that is not listed. Folders without
  /// index.json are not looked at.
  absl::Status Check(const std::vector<std::string>& indexes,
                     const std::map<std::string, std::optional<uint64_t>>& shards);

 private:
  // Reads the index.json of a folder once; errors are returned again.
  absl::Status ReadFolder(std::string_view folder);

  const Location& data_;
  const std::stop_token stop_;
  std::optional<std::string> folder_;             // the latest
  absl::Status read_;                             // of its index.json
  std::map<std::string, MdsShardEntry> entries_;  // of its index.json, by keys
  bool warned_ = false;
};

}  // namespace millrace
