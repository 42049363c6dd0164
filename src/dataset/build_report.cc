#include "dataset/build_report.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/counted.h"
#include "base/log.h"

namespace millrace {

DamagedShard DamagedShardOf(std::string key, const absl::Status& error, uint64_t samples) {
  constexpr std::string_view kOffset = "offset ";
  std::string_view why = ToStd(error.message());
  DamagedShard damaged{.key = std::move(key), .offset = std::nullopt, .why = {}, .samples = samples};
  if (why.starts_with(kOffset)) {
    uint64_t offset = 0;
    const auto [end, failed] = std::from_chars(why.data() + kOffset.size(), why.data() + why.size(), offset);
    const std::string_view rest = why.substr(static_cast<size_t>(end - why.data()));
    if (failed == std::errc() && rest.starts_with(": ")) {
      damaged.offset = offset;
      why = rest.substr(2);
    }
  }
  damaged.why = why;
  return damaged;
}

void NoteSkippedMembers(const SkippedMembers& of_shard, const std::string& shard, SkippedMembers* all) {
  const auto named = [&shard](const std::string& member) { return fmt::format("'{}' in '{}'", member, shard); };
  if (all->links == 0 && of_shard.links > 0) all->first_link = named(of_shard.first_link);
  if (all->unnamed == 0 && of_shard.unnamed > 0) all->first_unnamed = named(of_shard.first_unnamed);
  all->links += of_shard.links;
  all->unnamed += of_shard.unnamed;
}

void WarnOfLinks(const SkippedMembers& members) {
  const uint64_t links = members.links;
  if (links == 0) return;
  Log(LogLevel::kWarning, "dataset",
      fmt::format("{} of tar shards {} passed over, the first of them {}: a link has no data of its own; write the "
                  "file in its place (tar --hard-dereference --dereference)",
                  Counted(links, "link"), links == 1 ? "was" : "were", members.first_link));
}

}  // namespace millrace
