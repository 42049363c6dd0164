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

/// The index.json beside the shards of an MDS data set, against which these are held. Each is read once for the shards
/// of a folder that come one after the other. Blocking; not thread-safe.
class MdsIndexes {
 public:
  explicit MdsIndexes(const Location& data, std::stop_token stop = {}) : data_(data), stop_(std::move(stop)) {}

  /// A scanner of a shard that also makes the hashes which the index.json beside it has. Its Finish gives DataLoss if
  /// one is not that of the bytes; all samples are doubtful then. `*hashed` is set if there are hashes that this host
  /// can make; a warning names others. Errors are those of reading an index.json that is there.
  absl::StatusOr<std::unique_ptr<ShardScanner>> ScannerFor(const std::string& key, bool* hashed);

  /// The entry of a shard in the index.json beside it, valid until another folder is asked for. Null if there is none,
  /// or if the index.json cannot be read.
  const MdsShardEntry* Find(const std::string& key);

  /// Holds the shards against the index.json beside them, so that none is missed or left over: `indexes` are the keys
  /// of these, `shards` those of the shards with their sizes, all below the data set's URI; a shard without a size is
  /// known to be damaged, and may have any. DataLoss names the first shard that is not as it is listed, or an
  /// index.json that is damaged; InvalidArgument one that is not listed. Folders without index.json are not looked at.
  absl::Status Check(const std::vector<std::string>& indexes,
                     const std::map<std::string, std::optional<uint64_t>>& shards);

 private:
  // Asks once for a folder: errors come again.
  absl::Status ReadFolder(std::string_view folder);

  const Location& data_;
  const std::stop_token stop_;
  std::optional<std::string> folder_;             // the latest
  absl::Status read_;                             // of its index.json
  std::map<std::string, MdsShardEntry> entries_;  // of its index.json, by keys
  bool warned_ = false;
};

}  // namespace millrace
