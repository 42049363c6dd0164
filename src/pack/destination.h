#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "pack/pack_job.h"
#include "store/stores.h"

namespace millrace {

/// The names below a destination:
///
///   shard-000000.tar                   the shards
///   .millrace/incomplete               the job (PackJob), until all is there
///   .millrace/pack-000000-HASH         fragments; HASH is of the job and of the shard's size and ETag, so that a
///   listing
///                                      tells which shards are done
///   .millrace/index                    from the fragments, when all are there
///   .millrace/packed                   then what was done (PackRecord); what belongs to the job is removed after that
///
/// Blocking; not thread-safe but for the names.
class PackDestination {
 public:
  /// `suffix` is that of the shards, ".tar".
  PackDestination(const Location& location, std::string suffix, std::stop_token stop)
      : location_(location), suffix_(std::move(suffix)), stop_(std::move(stop)) {}

  /// Looks what is there and marks the destination as incomplete, or, where the same job was begun, continues it.
  /// `force` starts anew. `alone`: nobody else works at the job, so what a killed run left may be removed.
  /// AlreadyExists when there is something else, or, without `force`, another data set; FailedPrecondition when another
  /// job was begun there: says what differs.
  absl::Status Begin(const PackJob& job, bool force, bool alone);

  /// Whether a shard and its fragment are there, as Begin or Look have seen it.
  bool Has(uint64_t shard) const;
  /// What was done, when the job is: at most cleaning up is left.
  const std::optional<PackRecord>& record() const { return record_; }
  uint64_t Missing() const;
  /// Of all shards that are there.
  uint64_t ShardBytes() const;

  /// Looks again, since others work at the job too. False when it is over: done, or not begun any more.
  absl::StatusOr<bool> Look();

  /// The fragments of all shards, in order, with their sizes; none may be missing.
  std::vector<ObjectInfo> Fragments() const;

  /// After the index: records that the job is done.
  absl::Status Record(uint64_t samples, uint64_t skipped, uint64_t index_bytes);
  /// After that: removes shards of an earlier job that have no place in this one, and what belonged to the job.
  absl::Status CleanUp();

  const Location& location() const { return location_; }
  std::string Uri() const { return location_.store->Uri(location_.Key("")); }
  std::string ShardName(uint64_t shard) const;
  /// Key of the store of the fragment of a shard that was written with this size and ETag.
  std::string FragmentKey(uint64_t shard, uint64_t bytes, std::string_view etag) const;

 private:
  absl::Status Scan();
  absl::Status Take(const ObjectInfo& object);
  absl::StatusOr<std::optional<PackJob>> ReadMark();
  absl::Status ReadRecord();
  absl::Status Refuse() const;
  std::string HashShards() const;
  absl::Status Mark(bool only_if_absent);
  absl::Status StartAnew();
  absl::Status Continue(const PackJob& begun);
  absl::Status RemoveTemporary();
  absl::Status RemoveAll(std::vector<std::string> keys);
  std::string FragmentName(uint64_t shard, uint64_t bytes, std::string_view etag) const;

  const Location location_;
  const std::string suffix_;
  const std::stop_token stop_;
  PackJob job_;
  bool alone_ = true;

  // As the latest Scan found it; names below the destination.
  std::map<uint64_t, ObjectInfo> shards_;
  std::vector<std::string> surplus_;           // shards of other formats, or beyond the last
  std::map<std::string, uint64_t> fragments_;  // with their sizes
  std::string foreign_;                        // key of the first object that is not ours
  bool has_index_ = false;
  bool has_mark_ = false;
  bool has_record_ = false;
  std::optional<PackRecord> record_;  // of this job and these shards
  std::string difference_;            // of this job from the one that was recorded, if that is another
};

}  // namespace millrace
