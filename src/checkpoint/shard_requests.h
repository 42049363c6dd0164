#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "checkpoint/records.h"
#include "transfer/object_reader.h"

namespace millrace {

/// Makes a request for some of a shard below `folder`: whole pieces of it, from `begin` to `end`, with their checksums.
ObjectReader::Request RequestOf(const std::string& folder, const CheckpointShard& shard, uint64_t begin, uint64_t end);

/// Returns the message for an error of such a request. The store's own words for bytes with another checksum are about
/// data sets and their index.
absl::Status ErrorOfShard(const absl::Status& error, std::string_view uri);

}  // namespace millrace
