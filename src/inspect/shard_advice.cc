#include "inspect/shard_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/size.h"

namespace millrace {

namespace {

// Returns the size for --shard-size. It makes at least kFewShards of them if that is possible, and is the default of
// `pack` if there is much.
std::string ShardSize(uint64_t bytes) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  const uint64_t share = std::bit_floor(std::max<uint64_t>(bytes / kFewShards, 1));
  return fmt::format("{}MiB", std::clamp(share, 64 * kMiB, 256 * kMiB) / kMiB);
}

std::string Pack(std::string_view uri, uint64_t bytes) {
  return fmt::format("`millrace pack {} DESTINATION --shard-size {}`", uri, ShardSize(bytes));
}

}  // namespace

std::optional<std::string> AdviseShards(const ObjectSizes& sizes, std::string_view uri) {
  // Token files are read by ranges, of whatever size they are.
  if (sizes.objects == 0 || sizes.kind == DataKind::kTokens) return std::nullopt;
  const uint64_t mean = sizes.bytes / sizes.objects;
  const std::string pack = Pack(uri, sizes.bytes);
  if (sizes.kind == DataKind::kRawObjects) {
    if (sizes.objects < kManyObjects || mean >= kSmallObjectBytes) return std::nullopt;
    return fmt::format(
        "Each of the {} objects of {} on average costs a request of its own; {} puts them into shards, of which a "
        "request brings many samples.",
        sizes.objects, FormatSize(mean), pack);
  }
  if (sizes.bytes < kFewShards * kLeastShardBytes) return std::nullopt;
  if (sizes.objects < kFewShards) {
    const std::string few =
        sizes.objects == 1 ? "There is only one shard" : fmt::format("There are only {} shards", sizes.objects);
    return fmt::format(
        "{}: what is dealt out shard by shard (indexing, copying, other loaders' ranks and workers) does no more at a "
        "time; {} makes more of them.",
        few, pack);
  }
  if (mean < kLeastShardBytes) {
    return fmt::format(
        "The shards are small, {} on average. Listing, opening and copying them costs more requests than needed, and "
        "reads end at each; {} makes fewer of them (64 MB to 1 GB are a good size).",
        FormatSize(mean), pack);
  }
  if (mean > kMaxShardBytes) {
    return fmt::format(
        "The shards are large, {} on average: one that is damaged, or copied again, costs much; {} makes smaller ones "
        "(64 MB to 1 GB are a good size).",
        FormatSize(mean), pack);
  }
  return std::nullopt;
}

}  // namespace millrace
