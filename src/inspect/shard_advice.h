#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shard/data_kind.h"

/// Says if the objects of a data set have a sensible size. Pure.

namespace millrace {

/// Shards of 64 MB to 1 GB are read well one after the other, and lose little when one of them is damaged.
inline constexpr uint64_t kLeastShardBytes = 64'000'000;
inline constexpr uint64_t kMaxShardBytes = 1'000'000'000;
/// Fewer shards cannot be divided between ranks, workers and machines.
inline constexpr uint64_t kFewShards = 8;
/// This many raw objects of a smaller average size cost more in requests than in bytes.
inline constexpr uint64_t kManyObjects = 10'000;
inline constexpr uint64_t kSmallObjectBytes = uint64_t{1} << 20;

struct ObjectSizes {
  DataKind kind = DataKind::kRawObjects;
  uint64_t objects = 0;
  uint64_t bytes = 0;  // of all of them
};

/// Returns a sentence that says what is unfavorable, and the command that helps, for the data set at `uri`. Returns
/// nothing if the sizes are good, or if the data set is so small that they hardly matter: shards of less than
/// kFewShards x kLeastShardBytes together.
std::optional<std::string> AdviseShards(const ObjectSizes& sizes, std::string_view uri);

}  // namespace millrace
