#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/stores.h"

namespace millrace {

/// Holds the shards of an MDS data set against the index.json beside them, so that none is missed or left over:
/// `indexes` are the keys of these, `shards` those of the shards with their sizes, all below the data set's URI; a
/// shard without a size is known to be damaged, and may have any. DataLoss names the first shard that is not as it is
/// listed, or an index.json that is damaged; InvalidArgument one that is not listed. Folders without index.json are not
/// looked at. Blocking.
absl::Status CheckMdsShards(const Location& data, const std::vector<std::string>& indexes,
                            const std::map<std::string, std::optional<uint64_t>>& shards);

}  // namespace millrace
