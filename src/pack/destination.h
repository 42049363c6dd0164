#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/crypto.h"
#include "base/status.h"
#include "pack/destination_listing.h"
#include "pack/pack_job.h"
#include "shard/data_kind.h"
#include "store/stores.h"

namespace millrace {

/// The names below a destination:
///
///   shard-000000.tar                   the shards, and what belongs to them: shard-000000.idx, index.json
///   .millrace/incomplete               the job (PackJob), until all is there
///   .millrace/pack-000000-HASH         fragments; HASH is of the job and of the shard's size and ETag, so that a
///   listing
///                                      tells which shards are done
///   .millrace/index                    from the fragments, when all are there
///   .millrace/skipped                  the samples that were left out, if any
///   .millrace/packed                   then what was done (PackRecord); what belongs to the job is removed after that
///
/// Only files of this job are removed, or, by `force`, files of the data set or job that it replaces. Several
/// runs may work at one job: a shard that has its fragment is never replaced.
///
/// Blocking; only const methods are thread-safe.
class PackDestination {
 public:
  PackDestination(const Location& location, DataKind format, std::stop_token stop)
      : location_(location), stop_(std::move(stop)), there_({location.Key(""), format, 0}, 0) {}

  /// Lists the destination and marks it as incomplete, or, if the same job was begun there, continues it.
  /// `force` starts again: all files of a data set or a job are removed. AlreadyExists if there are other
  /// files, or, without `force`, another data set; FailedPrecondition, with the differences, if another job was begun
  /// there. In these cases nothing is changed.
  absl::Status Begin(const PackJob& job, bool force);
  /// Returns the errors of Begin without `force`, and sets record() as it does; changes nothing.
  absl::Status Check(const PackJob& job);

  /// Returns true if the job is still in progress. False: another run has completed it, or it was removed.
  /// FailedPrecondition if another job was begun there since.
  absl::StatusOr<bool> IsInProgress() const;

  /// Permits to write a shard, and names the object that it replaces.
  struct Claim {
    bool granted = false;    // false: it is not to be written, since it, or the whole job, is complete
    std::string stale_etag;  // of what a killed run has left under its name; "": there is nothing
  };
  /// Call it right before a shard is written.
  absl::StatusOr<Claim> ClaimShard(uint64_t shard) const;
  /// Call it right before the commit, if the store does not hold conditions (StoreTraits::holds_if_match). It removes
  /// the stale shard, unless that has changed.
  absl::Status RemoveStale(uint64_t shard, const std::string& stale_etag) const;

  /// Looks for an object that is, or has come, under the name of a claimed shard. Returns it if it has these bytes. The
  /// same job makes the same bytes, so it was written by another run, or by this one and the answer was lost.
  /// AlreadyExists, with the remedy, if it has other bytes.
  absl::StatusOr<ObjectInfo> Adopt(uint64_t shard, uint64_t bytes, Uint128 digest) const;

  /// Returns the record of the job if it is done: at most cleaning up is left.
  const std::optional<PackRecord>& record() const { return record_; }

  /// Lists again, since other runs work at the job, too. False if it is over: done, or removed.
  /// FailedPrecondition as IsInProgress; AlreadyExists if a shard has appeared that is not of the job.
  absl::StatusOr<bool> Look();

  /// Has the results of the job.
  struct Done {
    uint64_t samples = 0;
    uint64_t index_bytes = 0;
    std::vector<SkippedSample> skipped;
    std::vector<std::string> incomplete_objects;  // of the source
  };
  /// Call it after the index. It records that the job is done, and the left-out samples.
  absl::Status Record(const Done& done);
  /// Returns the samples that were left out, if the job is done.
  absl::StatusOr<std::vector<SkippedSample>> ReadSkipped() const;
  /// Call it after the record. It removes the files that belonged to the job.
  absl::Status CleanUp();

  const Location& location() const { return location_; }
  std::string Uri() const { return location_.store->Uri(location_.Key("")); }
  DataKind format() const { return there_.names.format; }
  const PackNames& names() const { return there_.names; }
  /// Returns the destination as Begin or Look have seen it.
  const DestinationListing& there() const { return there_; }

 private:
  absl::Status Scan();
  absl::StatusOr<std::optional<PackJob>> Judge();
  absl::Status ScanWithRecord();
  absl::StatusOr<std::optional<PackJob>> ReadMark(const ObjectInfo& mark) const;
  absl::Status ReadRecord();
  absl::Status Refuse() const;
  absl::Status Mark(bool only_if_absent);
  absl::Status CheckForeign() const;
  absl::Status CheckSurplus() const;
  absl::Status RemoveStaleRecord();
  absl::Status StartAnew();
  absl::Status Continue(const PackJob& begun);
  absl::Status RemoveTemporary();
  absl::Status RemoveAll(std::vector<std::string> keys) const;
  absl::StatusOr<std::optional<ObjectInfo>> Find(std::string_view name) const;

  const Location location_;
  const std::stop_token stop_;
  PackJob job_;
  std::optional<ObjectInfo>
      own_mark_;  // of this job, as Begin has written or read it: if it is found, it need not be read

  DestinationListing there_;          // the latest
  std::optional<PackRecord> record_;  // of this job and these shards
  std::string difference_;            // of this job from the one that was recorded, if that is another
};

}  // namespace millrace
