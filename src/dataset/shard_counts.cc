#include "dataset/shard_counts.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/buffer.h"
#include "base/log.h"
#include "dataset/mds_check.h"
#include "shard/wids_index.h"
#include "store/blocking.h"

namespace millrace {

namespace {

constexpr uint64_t kMaxJsonBytes = uint64_t{16} << 20;

std::string_view NameOf(std::string_view key) {
  return key.substr(key.rfind('/') + 1);
}

// Returns the counts in the order of the shards. Empty if a shard is not among them, or if a name is there twice.
std::vector<uint64_t> CountsOf(const std::vector<IndexedObject>& shards, const std::vector<WidsShard>& counted) {
  absl::flat_hash_map<std::string_view, uint64_t> by_name;
  for (const WidsShard& shard : counted) {
    if (!by_name.emplace(NameOf(shard.url), shard.samples).second) return {};
  }
  std::vector<uint64_t> counts;
  for (const IndexedObject& shard : shards) {
    const auto found = by_name.find(NameOf(shard.key));
    if (found == by_name.end()) return {};
    counts.push_back(found->second);
    by_name.erase(found);
  }
  return counts;
}

absl::StatusOr<std::string> Read(const DatasetPlace& data, const ObjectInfo& object, const std::stop_token& stop) {
  Buffer buffer(object.size);
  GetOptions get;
  get.range = {0, object.size};
  get.if_match = object.etag;
  get.whole = true;
  get.stop = stop;
  RETURN_IF_ERROR(GetBlocking(*data.store, object.key, buffer.span(), std::move(get)).status());
  return std::string(AsText(std::as_const(buffer).span()));
}

absl::StatusOr<std::vector<uint64_t>> CountsOfWids(const DatasetPlace& data, const std::vector<IndexedObject>& shards,
                                                   const std::vector<ObjectInfo>& candidates,
                                                   const std::stop_token& stop) {
  for (const ObjectInfo& object : candidates) {
    if (object.size == 0 || object.size > kMaxJsonBytes) continue;
    const absl::StatusOr<std::string> text = Read(data, object, stop);
    if (absl::IsCancelled(text.status())) return text.status();
    if (!text.ok()) {
      Log(LogLevel::kInfo, "dataset",
          fmt::format("{} is not read: {}", data.store->Uri(object.key), ToStd(text.status().message())));
      continue;
    }
    const absl::StatusOr<std::vector<WidsShard>> counted = ParseWidsIndex(*text);
    if (!counted.ok()) continue;
    std::vector<uint64_t> counts = CountsOf(shards, *counted);
    if (!counts.empty()) return counts;
  }
  return std::vector<uint64_t>();
}

}  // namespace

absl::StatusOr<std::vector<uint64_t>> FindShardCounts(const DatasetPlace& data,
                                                      const std::vector<IndexedObject>& shards,
                                                      const SampleObjects& listing, const std::stop_token& stop) {
  if (listing.kind() == DataKind::kTar) return CountsOfWids(data, shards, listing.json_files(), stop);
  std::vector<uint64_t> counts;
  if (listing.kind() != DataKind::kMds) return counts;
  MdsIndexes indexes(data, stop);
  for (const IndexedObject& shard : shards) {
    const MdsShardEntry* const entry = indexes.Find(shard.key);
    if (stop.stop_requested()) return absl::CancelledError("stopped");
    if (entry == nullptr) return std::vector<uint64_t>();
    counts.push_back(entry->samples);
  }
  return counts;
}

}  // namespace millrace
