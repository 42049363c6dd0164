#include "dataset/mds_check.h"

#include <fmt/format.h>

#include <set>
#include <string_view>
#include <utility>

#include "base/buffer.h"
#include "shard/mds_format.h"
#include "store/blocking.h"

namespace millrace {

namespace {

constexpr uint64_t kMaxIndexBytes = uint64_t{256} << 20;

std::string_view FolderOf(std::string_view key) {
  return key.substr(0, key.rfind('/') + 1);
}

absl::StatusOr<std::vector<MdsShardEntry>> ReadIndex(const Location& data, const std::string& key) {
  ASSIGN_OR_RETURN(const ObjectInfo info, HeadBlocking(*data.store, data.Key(key)));
  if (info.size > kMaxIndexBytes) {
    return absl::InvalidArgumentError(fmt::format("{}: an index.json of {} bytes (at most {} are read)",
                                                  data.store->Uri(info.key), info.size, kMaxIndexBytes));
  }
  Buffer buffer(info.size);
  GetOptions options;
  options.range = {0, info.size};
  options.if_match = info.etag;
  options.whole = true;
  if (info.size > 0) {
    RETURN_IF_ERROR(GetBlocking(*data.store, info.key, buffer.span(), std::move(options)).status());
  }
  absl::StatusOr<std::vector<MdsShardEntry>> entries = ParseMdsIndex(AsText(std::as_const(buffer).span()));
  if (!entries.ok()) return Annotate(entries.status(), data.store->Uri(info.key));
  return entries;
}

}  // namespace

absl::Status CheckMdsShards(const Location& data, const std::vector<std::string>& indexes,
                            const std::map<std::string, std::optional<uint64_t>>& shards) {
  for (const std::string& index : indexes) {
    const std::string_view folder = FolderOf(index);
    const std::string uri = data.store->Uri(data.Key(index));
    ASSIGN_OR_RETURN(const std::vector<MdsShardEntry> entries, ReadIndex(data, index));
    std::set<std::string> listed;
    for (const MdsShardEntry& entry : entries) {
      const std::string key = std::string(folder) + entry.name;
      const auto found = shards.find(key);
      if (found == shards.end()) {
        return absl::DataLossError(fmt::format("{}: lists the shard '{}', which is not there", uri, entry.name));
      }
      if (found->second && *found->second != entry.bytes) {
        return absl::DataLossError(fmt::format("{}: says that the shard '{}' has {} bytes; it has {}", uri, entry.name,
                                               entry.bytes, *found->second));
      }
      listed.insert(key);
    }
    for (auto shard = shards.lower_bound(std::string(folder)); shard != shards.end(); ++shard) {
      if (!shard->first.starts_with(folder)) break;
      if (FolderOf(shard->first) != folder || listed.contains(shard->first)) continue;
      return absl::InvalidArgumentError(fmt::format("{}: is not listed in the index.json beside it; remove one of them",
                                                    data.store->Uri(data.Key(shard->first))));
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
