#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

/// Checkpoints consist of shards and two kinds of JSON documents, which are defined here, with the names of all objects
/// (docs/checkpoints.md). Plain data without I/O.

namespace millrace {

/// Identifies the process that may commit. A later claim has a greater epoch, and fences the earlier ones off.
struct CheckpointWriter {
  uint64_t epoch = 0;
  std::string id;  // random: tells processes apart that believe to have the same epoch
};

/// Describes one committed checkpoint, as LATEST names it.
struct CheckpointEntry {
  uint64_t step = 0;
  std::string attempt;          // unique: no two saves ever write below the same STEP/ATTEMPT/
  uint64_t bytes = 0;           // of its shards
  uint64_t saved_ms = 0;        // since 1970, by the clock of its writer; for people only
  uint64_t manifest_bytes = 0;  // of MANIFEST.json
  uint32_t manifest_crc32c = 0;

  friend bool operator==(const CheckpointEntry&, const CheckpointEntry&) = default;
};

/// Has the contents of LATEST: the process that may commit, and all committed checkpoints in the order of their
/// commits. A checkpoint that it does not name does not count, even if it is whole.
struct CheckpointCatalog {
  CheckpointWriter writer;
  bool conditional_writes = true;  // false: the store does not hold the conditions of writes, so that nobody is fenced
  std::vector<CheckpointEntry> entries;  // no two of one step

  /// Returns nullptr if there is no checkpoint.
  const CheckpointEntry* Newest() const { return entries.empty() ? nullptr : &entries.back(); }
  const CheckpointEntry* Find(uint64_t step) const;

  std::string ToJson() const;
  /// Returns DataLoss if the text is not what ToJson made. The message completes the sentence "OBJECT ...".
  static absl::StatusOr<CheckpointCatalog> FromJson(std::string_view text);
};

/// Describes an object of a checkpoint. It is checked in pieces, so that a range of it can be read and verified.
struct CheckpointShard {
  std::string name;  // below STEP/ATTEMPT/
  uint64_t bytes = 0;
  uint32_t crc32c = 0;                 // of all of it
  uint64_t piece_bytes = 0;            // that have a checksum together; the last piece may be shorter
  std::vector<uint32_t> piece_crc32c;  // none if it is empty
};

/// Writes shards as one line of JSON, for another process that puts them into a manifest.
std::string ShardsToJson(const std::vector<CheckpointShard>& shards);
/// Returns DataLoss if the text is not what ShardsToJson made.
absl::StatusOr<std::vector<CheckpointShard>> ShardsFromJson(std::string_view text);

/// Has the contents of MANIFEST.json: what a checkpoint consists of.
struct CheckpointManifest {
  uint64_t step = 0;
  std::string attempt;
  uint64_t epoch = 0;
  uint64_t saved_ms = 0;
  std::string host;  // of the writer; for people only
  std::vector<CheckpointShard> shards;

  uint64_t Bytes() const;
  std::string ToJson() const;
  static absl::StatusOr<CheckpointManifest> FromJson(std::string_view text);
};

/// Steps have twelve digits in keys, so that their order is that of the keys.
inline constexpr uint64_t kMaxCheckpointStep = 999'999'999'999;
/// LATEST is read and written whole.
inline constexpr size_t kMaxCheckpoints = 10'000;
inline constexpr uint64_t kMaxManifestBytes = 1 << 30;  // the checksums of 8,000 shards of any size (shard_write.cc)
inline constexpr std::string_view kManifestName = "MANIFEST.json";

/// Returns "000000000100/e3-0123456789abcdef/", below the folder of the checkpoints.
std::string AttemptFolder(uint64_t step, std::string_view attempt);
/// Returns a new name of an attempt. It has the epoch, which distinguishes the remains of killed writers from the files
/// of running ones.
std::string NewAttempt(uint64_t epoch);
/// Returns 0 if it is no name of an attempt.
uint64_t EpochOfAttempt(std::string_view attempt);
/// Returns false if `text` is no folder of a step.
bool ParseStepFolder(std::string_view text, uint64_t* step);

/// Returns InvalidArgument unless the name is 1 to 200 letters, digits, '.', '-' and '_', and does not begin with a
/// '.'; or if the manifest has that name.
absl::Status CheckShardName(std::string_view name);

}  // namespace millrace
