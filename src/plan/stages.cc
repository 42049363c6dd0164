#include "plan/stages.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/crypto.h"
#include "base/rng.h"
#include "plan/permutation.h"
#include "plan/position.h"

namespace millrace {

namespace {

constexpr uint64_t kListingDomain = 0x4d522d6c69737431;  // "MR-list1"
constexpr uint64_t kStagesDomain = 0x4d522d7374616765;   // "MR-stage"
constexpr uint64_t kStagedDomain = 0x4d522d7374677264;   // "MR-stgrd"

}  // namespace

uint64_t ListingFingerprint(std::span<const ListedShard> shards) {
  uint64_t hash = HashKey(kListingDomain, {shards.size()});
  for (const ListedShard& shard : shards)
    hash = HashKey(hash, {Xxh3(AsBytes(shard.key)), shard.size, Xxh3(AsBytes(shard.etag))});
  return hash;
}

Stages::Stages(std::span<const uint64_t> sizes, uint64_t seed) {
  const Permutation order(sizes.size(), HashKey(kStagesDomain, {seed}));
  uint64_t target = kFirstBytes;
  uint64_t bytes = 0;
  std::vector<uint64_t> stage;
  const auto close = [&] {
    std::sort(stage.begin(), stage.end());
    stages_.push_back(std::move(stage));
    stage.clear();
    target = 2 * bytes;
    bytes = 0;
  };
  for (uint64_t i = 0; i < sizes.size(); ++i) {
    const uint64_t shard = order.At(i);
    stage.push_back(shard);
    bytes += sizes[shard];
    if (bytes >= target || (stages_.empty() && stage.size() == kFirstShards)) close();
  }
  if (!stage.empty()) close();
}

uint64_t StagedFingerprint(uint64_t listing_fingerprint, Shuffle shuffle, const ChosenSizes& chosen, uint64_t seed) {
  const bool windowed = shuffle == Shuffle::kWindow;  // the other orders do not depend on these sizes
  return HashKey(kStagedDomain,
                 {kStagedPositionVersion, listing_fingerprint, seed, static_cast<uint64_t>(shuffle),
                  windowed ? chosen.extent : 0, windowed ? chosen.window : 0, windowed ? chosen.lanes : 0});
}

}  // namespace millrace
