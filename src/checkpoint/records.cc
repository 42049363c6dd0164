#include "checkpoint/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/crypto.h"
#include "base/json_members.h"
#include "base/number.h"

namespace millrace {

namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kCatalogVersion = 1;
// Version 1 has the checksums of the pieces of a shard as a list of strings. All versions from 1 are read.
constexpr uint64_t kManifestVersion = 2;
constexpr int kStepDigits = 12;
constexpr size_t kCrcDigits = 8;

std::string Dump(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

std::string CrcText(uint32_t crc) {
  return fmt::format("{:08x}", crc);
}

bool ParseCrc(std::string_view text, uint32_t* crc) {
  return text.size() == kCrcDigits && ParseNumber(text, crc, 16);
}

absl::Status CheckFormat(const Json& json, std::string_view format, uint64_t newest) {
  std::string found;
  uint64_t version = 0;
  if (!JsonMembers(json).Take("format", &found).Take("version", &version).whole() || found != format)
    return absl::DataLossError(fmt::format("is damaged, or no {} at all", format));
  if (version >= 1 && version <= newest) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("has version {}, and this Millrace knows version {}; use a newer one", version, newest));
}

bool TakeEntry(const Json& json, CheckpointEntry* entry) {
  return JsonMembers(json)
             .Take("step", &entry->step)
             .Take("attempt", &entry->attempt)
             .Take("bytes", &entry->bytes)
             .Take("saved_ms", &entry->saved_ms)
             .Take("manifest_bytes", &entry->manifest_bytes)
             .TakeCrc("manifest_crc32c", &entry->manifest_crc32c)
             .whole() &&
         entry->step <= kMaxCheckpointStep && EpochOfAttempt(entry->attempt) > 0;
}

// All checksums of a shard's pieces are one string. There may be millions of them in a manifest, and a JSON value of
// its own takes ten times as much memory as a checksum.
bool ParseCrcs(std::string_view text, std::vector<uint32_t>* crcs) {
  if (text.size() % kCrcDigits != 0) return false;
  for (; !text.empty(); text.remove_prefix(kCrcDigits)) {
    if (!ParseCrc(text.substr(0, kCrcDigits), &crcs->emplace_back())) return false;
  }
  return true;
}

bool TakeShard(const Json& json, CheckpointShard* shard) {
  const auto take_crcs = [shard](const Json& text) {
    return text.is_string() && ParseCrcs(text.get_ref<const std::string&>(), &shard->piece_crc32c);
  };
  JsonMembers members(json);
  members.Take("name", &shard->name)
      .Take("bytes", &shard->bytes)
      .TakeCrc("crc32c", &shard->crc32c)
      .Take("piece_bytes", &shard->piece_bytes);
  if (!members.whole() || !json.contains("piece_crc32c")) return false;
  const Json& crcs = json["piece_crc32c"];
  // A list of strings is what version 1 of the manifest has.
  const bool whole = crcs.is_array() ? std::all_of(crcs.begin(), crcs.end(), take_crcs) : take_crcs(crcs);
  if (!whole) return false;
  if (!CheckShardName(shard->name).ok() || shard->piece_bytes == 0) return false;
  const uint64_t pieces = shard->bytes / shard->piece_bytes + (shard->bytes % shard->piece_bytes == 0 ? 0 : 1);
  return pieces == shard->piece_crc32c.size();
}

Json JsonOf(const std::vector<CheckpointShard>& shards) {
  Json list = Json::array();
  for (const CheckpointShard& shard : shards) {
    std::string crcs;
    crcs.reserve(shard.piece_crc32c.size() * kCrcDigits);
    for (const uint32_t crc : shard.piece_crc32c) crcs += CrcText(crc);
    list.push_back({{"name", shard.name},
                    {"bytes", shard.bytes},
                    {"crc32c", CrcText(shard.crc32c)},
                    {"piece_bytes", shard.piece_bytes},
                    {"piece_crc32c", std::move(crcs)}});
  }
  return list;
}

}  // namespace

std::string ShardsToJson(const std::vector<CheckpointShard>& shards) {
  return JsonOf(shards).dump();
}

absl::StatusOr<std::vector<CheckpointShard>> ShardsFromJson(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::vector<CheckpointShard> shards;
  const auto take_shard = [&shards](const Json& shard) { return TakeShard(shard, &shards.emplace_back()); };
  if (json.is_array() && std::all_of(json.begin(), json.end(), take_shard)) return shards;
  return absl::DataLossError("the shards of another process are damaged");
}

const CheckpointEntry* CheckpointCatalog::Find(uint64_t step) const {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.step == step; });
  return found == entries.end() ? nullptr : &*found;
}

std::string CheckpointCatalog::ToJson() const {
  Json list = Json::array();
  for (const CheckpointEntry& entry : entries) {
    list.push_back({{"step", entry.step},
                    {"attempt", entry.attempt},
                    {"bytes", entry.bytes},
                    {"saved_ms", entry.saved_ms},
                    {"manifest_bytes", entry.manifest_bytes},
                    {"manifest_crc32c", CrcText(entry.manifest_crc32c)}});
  }
  return Dump({{"format", "millrace-checkpoints"},
               {"version", kCatalogVersion},
               {"epoch", writer.epoch},
               {"writer", writer.id},
               {"conditional_writes", conditional_writes},
               {"checkpoints", std::move(list)}});
}

absl::StatusOr<CheckpointCatalog> CheckpointCatalog::FromJson(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  RETURN_IF_ERROR(CheckFormat(json, "millrace-checkpoints", kCatalogVersion));
  CheckpointCatalog catalog;
  const auto take_entry = [&catalog](const Json& entry) { return TakeEntry(entry, &catalog.entries.emplace_back()); };
  JsonMembers members(json);
  members.Take("epoch", &catalog.writer.epoch)
      .Take("writer", &catalog.writer.id)
      .Take("conditional_writes", &catalog.conditional_writes)
      .TakeEach("checkpoints", take_entry);
  if (!members.whole()) return absl::DataLossError("is damaged: a member is missing or of another type");
  return catalog;
}

uint64_t CheckpointManifest::Bytes() const {
  uint64_t bytes = 0;
  for (const CheckpointShard& shard : shards) bytes += shard.bytes;
  return bytes;
}

std::string CheckpointManifest::ToJson() const {
  return Dump({{"format", "millrace-checkpoint"},
               {"version", kManifestVersion},
               {"step", step},
               {"attempt", attempt},
               {"epoch", epoch},
               {"saved_ms", saved_ms},
               {"host", host},
               {"shards", JsonOf(shards)}});
}

absl::StatusOr<CheckpointManifest> CheckpointManifest::FromJson(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  RETURN_IF_ERROR(CheckFormat(json, "millrace-checkpoint", kManifestVersion));
  CheckpointManifest manifest;
  const auto take_shard = [&manifest](const Json& shard) { return TakeShard(shard, &manifest.shards.emplace_back()); };
  JsonMembers members(json);
  members.Take("step", &manifest.step)
      .Take("attempt", &manifest.attempt)
      .Take("epoch", &manifest.epoch)
      .Take("saved_ms", &manifest.saved_ms)
      .Take("host", &manifest.host)
      .TakeEach("shards", take_shard);
  if (!members.whole()) return absl::DataLossError("is damaged: a member is missing or of another type");
  return manifest;
}

std::string AttemptFolder(uint64_t step, std::string_view attempt) {
  return fmt::format("{:0{}}/{}/", step, kStepDigits, attempt);
}

std::string NewAttempt(uint64_t epoch) {
  return fmt::format("e{}-{}", epoch, RandomHex(8));
}

uint64_t EpochOfAttempt(std::string_view attempt) {
  const size_t dash = attempt.find('-');
  if (!attempt.starts_with('e') || attempt.size() - std::min(dash, attempt.size()) != 17) return 0;
  if (!IsLowerHex(attempt.substr(dash + 1))) return 0;
  return ParseNumber<uint64_t>(attempt.substr(1, dash - 1)).value_or(0);
}

bool ParseStepFolder(std::string_view text, uint64_t* step) {
  return text.size() == kStepDigits && ParseNumber(text, step);
}

absl::Status CheckShardName(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_';
  };
  const bool good = !name.empty() && name.size() <= 200 && name.front() != '.' && name != kManifestName &&
                    std::all_of(name.begin(), name.end(), allowed);
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("'{}' cannot be the name of a shard; use up to 200 letters, digits, '.', '-' and '_'", name));
}

}  // namespace millrace
