#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "plan/order_policy.h"

namespace millrace {

/// Describes a shard as a listing has it.
struct ListedShard {
  std::string_view key;  // below the data set's URI
  uint64_t size = 0;
  std::string_view etag;
};

/// Identifies a listing: the keys, sizes and ETags of its shards, in ascending order of keys.
uint64_t ListingFingerprint(std::span<const ListedShard> shards);

/// Divides the shards of a data set into stages (docs/plan.md#the-staged-first-epoch), as a pure function of their
/// sizes, in the order of keys, and a seed.
class Stages {
 public:
  static constexpr uint64_t kFirstBytes = uint64_t{256} << 20;
  static constexpr uint64_t kFirstShards = 64;

  Stages(std::span<const uint64_t> sizes, uint64_t seed);

  uint64_t size() const { return stages_.size(); }
  /// Returns the shards of a stage, by their places in the listing, ascending. stage < size().
  const std::vector<uint64_t>& ShardsOf(uint64_t stage) const { return stages_[stage]; }

 private:
  std::vector<std::vector<uint64_t>> stages_;
};

/// These parts of the policy of the windowed shuffle were chosen; 0: they follow from the index of each stage.
struct ChosenSizes {
  uint64_t extent = 0;
  uint64_t window = 0;
  uint64_t lanes = 0;
};

/// Identifies the order of a staged loader, of all its epochs. It is known before any shard is read.
uint64_t StagedFingerprint(uint64_t listing_fingerprint, Shuffle shuffle, const ChosenSizes& chosen, uint64_t seed);

}  // namespace millrace
