#include "pack/destination_listing.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/crypto.h"
#include "dataset/sample_objects.h"
#include "shard/mds_format.h"
#include "shard/shard_encoder.h"

namespace millrace {

namespace {

constexpr std::string_view kFragmentStart = ".millrace/pack-";
constexpr std::string_view kShardStart = "shard-";
constexpr size_t kDigits = 6;

// Returns the number of a name such as shard-000012.tar, whatever its ending.
std::optional<uint64_t> NumberIn(std::string_view name) {
  if (!name.starts_with(kShardStart) || name.find('/') != std::string_view::npos) return std::nullopt;
  name.remove_prefix(kShardStart.size());
  if (name.size() <= kDigits || name.find('.') != kDigits || name.rfind('.') != kDigits) return std::nullopt;
  uint64_t number = 0;
  for (const char c : name.substr(0, kDigits)) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + static_cast<uint64_t>(c - '0');
  }
  return number;
}

// Returns the number of a shard of any format; nullopt for names that only begin like a shard's.
std::optional<uint64_t> ShardNumber(std::string_view name) {
  return ShardKind(name) ? NumberIn(name) : std::nullopt;
}

bool IsShardCompanion(std::string_view name) {
  return name.ends_with(kCompanionSuffix) && NumberIn(name).has_value();
}

}  // namespace

std::string PackNames::Shard(uint64_t shard) const {
  return fmt::format("{}{:06}{}", kShardStart, shard, ShardSuffix(format));
}

std::string PackNames::Companion(uint64_t shard) const {
  if (format != DataKind::kRecordIo) return "";
  return fmt::format("{}{:06}{}", kShardStart, shard, kCompanionSuffix);
}

std::string PackNames::Fragment(uint64_t shard, uint64_t bytes, std::string_view etag) const {
  return fmt::format("{}{:06}-{:016x}", kFragmentStart, shard,
                     Xxh3(AsBytes(fmt::format("{:016x} {} {}", job, bytes, etag))));
}

void DestinationListing::Take(const ObjectInfo& object) {
  const std::string name = object.key.substr(names.prefix.size());
  if (name.empty() || name.ends_with('/')) return;  // folder markers
  if (name == kIncompleteName) {
    mark = object;
  } else if (name == kIndexName) {
    has_index = true;
  } else if (name == kRecordName) {
    record = object;
  } else if (name.starts_with(kFragmentStart)) {
    fragments.emplace(name, object.size);
  } else if (name.starts_with(kDatasetFolder)) {
    return;
  } else if (name == kMdsIndexName || IsShardCompanion(name)) {
    companions.insert(name);
  } else if (const std::optional<uint64_t> number = ShardNumber(name); !number) {
    if (foreign.empty()) foreign = object.key;
  } else if (*number < shard_count && name == names.Shard(*number)) {
    shards.emplace(*number, object);
  } else {
    surplus.push_back(name);
  }
}

// Only beside shards of their format they are what they look like.
void DestinationListing::JudgeCompanions() {
  const auto has_shards = [this](DataKind kind) {
    if (kind == names.format && (mark || !shards.empty())) return true;
    return std::any_of(surplus.begin(), surplus.end(),
                       [kind](const std::string& name) { return ShardKind(name) == kind; });
  };
  for (const std::string& name : companions) {
    if (!has_shards(name == kMdsIndexName ? DataKind::kMds : DataKind::kRecordIo) && foreign.empty())
      foreign = names.prefix + name;
  }
}

std::string DestinationListing::MissingCompanion() const {
  if (names.format == DataKind::kMds)
    return companions.contains(std::string(kMdsIndexName)) ? "" : std::string(kMdsIndexName);
  for (const auto& [number, shard] : shards) {
    std::string name = names.Companion(number);
    if (!name.empty() && !companions.contains(name)) return name;
  }
  return "";
}

std::string DestinationListing::HashShards() const {
  Xxh3Stream hash;
  for (const auto& [number, shard] : shards) {
    hash.UpdateLe64(number);
    hash.UpdateLe64(shard.size);
    hash.UpdateLe64(shard.etag.size());
    hash.Update(AsBytes(shard.etag));
  }
  return hash.Digest().Hex();
}

bool DestinationListing::Has(uint64_t shard) const {
  const auto found = shards.find(shard);
  if (const std::string companion = names.Companion(shard); !companion.empty() && !companions.contains(companion))
    return false;
  return found != shards.end() && fragments.contains(names.Fragment(shard, found->second.size, found->second.etag));
}

uint64_t DestinationListing::Missing() const {
  uint64_t missing = 0;
  for (uint64_t shard = 0; shard < shard_count; ++shard) missing += Has(shard) ? 0 : 1;
  return missing;
}

uint64_t DestinationListing::ShardBytes() const {
  uint64_t bytes = 0;
  for (const auto& [number, shard] : shards) bytes += shard.size;
  return bytes;
}

std::vector<ObjectInfo> DestinationListing::Fragments(uint64_t part, uint64_t parts) const {
  std::vector<ObjectInfo> found;
  for (const auto& [number, shard] : shards) {
    if (number % parts != part) continue;
    const std::string name = names.Fragment(number, shard.size, shard.etag);
    const auto fragment = fragments.find(name);
    if (fragment == fragments.end()) continue;
    ObjectInfo& info = found.emplace_back();
    info.key = names.prefix + name;
    info.size = fragment->second;
  }
  return found;
}

}  // namespace millrace
