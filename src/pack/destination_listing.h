#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shard/data_kind.h"
#include "store/stores.h"

/// This header has the names of the objects of a pack, and what a listing of a destination shows about them. Pure.

namespace millrace {

inline constexpr std::string_view kRecordName = ".millrace/packed";
inline constexpr std::string_view kSkippedName = ".millrace/skipped";

/// Makes the names below a destination (see PackDestination).
struct PackNames {
  std::string prefix;  // of the destination, in the store
  DataKind format = DataKind::kTar;
  uint64_t job = 0;  // PackJob::Id

  std::string Shard(uint64_t shard) const;
  /// Returns the object beside a shard (ShardEncoder::Companion); "" for a format without companions.
  std::string Companion(uint64_t shard) const;
  /// Returns the fragment of a shard that was written with this size and ETag.
  std::string Fragment(uint64_t shard, uint64_t bytes, std::string_view etag) const;
};

/// Has the objects of the destination. All but `foreign` and keys of ObjectInfo are names below the destination.
struct DestinationListing {
  DestinationListing() = default;
  /// `job_shards` says how many the job has.
  DestinationListing(PackNames pack_names, uint64_t job_shards)
      : names(std::move(pack_names)), shard_count(job_shards) {}

  PackNames names;
  uint64_t shard_count = 0;
  std::map<uint64_t, ObjectInfo> shards;
  std::vector<std::string> surplus;           // shards that this job does not write
  std::set<std::string> companions;           // of shards of any format
  std::map<std::string, uint64_t> fragments;  // with their sizes
  std::string foreign;                        // key of the first object that is not ours
  std::optional<ObjectInfo> mark;
  std::optional<ObjectInfo> record;
  bool has_index = false;

  /// Takes an object of the listing, in order.
  void Take(const ObjectInfo& object);
  /// Call it after the last object. An object with the name of a companion is one only beside shards of its format.
  void JudgeCompanions();

  /// Returns true if a shard, its companion and its fragment are there.
  bool Has(uint64_t shard) const;
  /// Returns the missing objects that other readers need beside the shards; "" if all exist.
  std::string MissingCompanion() const;
  /// Returns the fragments of the shards that are `part` modulo `parts`, in order: keys and sizes, of those that have
  /// one.
  std::vector<ObjectInfo> Fragments(uint64_t part = 0, uint64_t parts = 1) const;
  /// Returns a hash of the numbers, sizes and ETags of the shards, to notice changes.
  std::string HashShards() const;
  /// Returns the sum of the sizes of all shards that are there.
  uint64_t ShardBytes() const;
  uint64_t Missing() const;
};

}  // namespace millrace
