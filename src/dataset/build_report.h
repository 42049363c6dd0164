#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "dataset/skipped_objects.h"
#include "shard/shard_scanner.h"

namespace millrace {

/// Describes a damaged shard, whose samples from the damaged place to its end were left out (BuildOptions::skip_bad).
struct DamagedShard {
  std::string key;                 // below the data set's URI
  std::optional<uint64_t> offset;  // of the place, where it is known
  std::string why;
  uint64_t samples = 0;  // before it, which are indexed
};

/// Returns the report of a shard for which a scanner gave this error. The error's message begins with the offset, if it
/// is known.
DamagedShard DamagedShardOf(std::string key, const absl::Status& error, uint64_t samples);

/// Adds the skipped members of a shard to those of all.
void NoteSkippedMembers(const SkippedMembers& of_shard, const std::string& shard, SkippedMembers* all);
/// Warns of links, because the maker of the shard will miss them.
void WarnOfLinks(const SkippedMembers& members);

/// Reports on the building of an index.
struct BuildReport {
  uint64_t reused_objects = 0;        // that were unchanged: their samples were taken from the index that was there
  uint64_t outlined_objects = 0;      // shards that were not read: other programs have noted where their samples lie
  std::vector<DamagedShard> damaged;  // in order of keys
  bool keys_ascend = true;            // so that no two are equal
  std::vector<std::string> warnings;  // sentences about what the data set may not be meant to be; from Dataset::Open
  SkippedObjects skipped;
  SkippedMembers skipped_members;  // of the tar shards that were read, as "'NAME' in 'SHARD'"
};

}  // namespace millrace
