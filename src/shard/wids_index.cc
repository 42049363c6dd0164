#include "shard/wids_index.h"

#include "base/json_members.h"

namespace millrace {

absl::StatusOr<std::vector<WidsShard>> ParseWidsIndex(std::string_view json) {
  using Json = JsonMembers::Json;
  const Json index = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  std::vector<WidsShard> shards;
  const auto take = [&shards](const Json& shard) {
    WidsShard& taken = shards.emplace_back();
    return JsonMembers(shard).Take("url", &taken.url).Take("nsamples", &taken.samples).whole();
  };
  uint64_t version = 0;
  const bool whole = JsonMembers(index).Take("wids_version", &version).TakeEach("shardlist", take).whole();
  if (!whole) return absl::InvalidArgumentError("it is no index JSON of wids");
  return shards;
}

}  // namespace millrace
