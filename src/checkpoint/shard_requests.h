#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/records.h"
#include "transfer/object_reader.h"

namespace millrace {

/// A request for some of a shard below `folder`: whole pieces of it, from `begin` to `end`, with their checksums.
ObjectReader::Request RequestOf(const std::string& folder, const CheckpointShard& shard, uint64_t begin, uint64_t end);

}  // namespace millrace
