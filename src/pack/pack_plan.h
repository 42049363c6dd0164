#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "dataset/index.h"
#include "pack/sample_view.h"
#include "plan/sample_order.h"
#include "shard/shard_encoder.h"

/// The plan says which sample goes to which shard. It is a pure function of the source's index, the order, the class
/// map, the format and the size of shards. The contents of a shard do not depend on other shards. So shards are written
/// independently of each other: by threads, by machines, and after a kill only the missing ones.

namespace millrace {

struct PackPlan {
  std::vector<uint64_t> starts;  // first position of each shard; the last entry: all samples
  std::vector<uint64_t> bytes;   // of each shard; about, unless the encoder is exact and all samples are
  bool converts = false;         // there are samples that are not exact
  uint64_t largest_sample = 0;   // bytes of one, as it is stored or by its values
  uint64_t largest_shard = 0;
  uint64_t most_samples = 0;   // of a shard
  uint64_t most_entries = 0;   // bytes, at most, of a shard's entries in the index, that is, of its fragment
  uint64_t without_image = 0;  // samples without a field that is an image
  std::string first_without_image;
  uint64_t lacking_fields = 0;  // samples without one of the chosen fields
  std::string first_lacking_fields;

  uint64_t shards() const { return bytes.size(); }
  uint64_t total_bytes() const;
};

/// More shards would not sort by their names, which have six digits.
inline constexpr uint64_t kMaxShards = 1'000'000;

/// Fills shards up to `shard_bytes`; only a sample that is larger makes a larger one. Walks the whole index, some
/// microseconds a sample. InvalidArgument, before anything is written, for samples that the format cannot hold or tell
/// apart, for classes that are not in the map, and for more than kMaxShards; DataLoss for a damaged index.
absl::StatusOr<PackPlan> MakePackPlan(const Index& index, const SampleOrder& order, const SampleView& view,
                                      const ShardEncoder& encoder, uint64_t shard_bytes);

}  // namespace millrace
