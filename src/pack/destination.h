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
/// Nothing is removed but what belongs to this job, or, by `force`, to the data set or job that it replaces. Several
/// runs may work at one job: a shard that has its fragment is never replaced.
///
/// Blocking; not thread-safe but for what is const.
class PackDestination {
 public:
  PackDestination(const Location& location, DataKind format, std::stop_token stop)
      : location_(location), stop_(std::move(stop)), there_({location.Key(""), format, 0}, 0) {}

  /// Looks what is there and marks the destination as incomplete, or, where the same job was begun, continues it.
  /// `force` starts again: shards and what else belongs to a data set or a job are removed. AlreadyExists when there is
  /// something else, or, without `force`, another data set; FailedPrecondition when another job was begun there: says
  /// what differs. Nothing is touched then.
  absl::Status Begin(const PackJob& job, bool force);
  /// What Begin without `force` would refuse, and record() as after it; touches nothing.
  absl::Status Check(const PackJob& job);

  /// Whether the job is still in progress. False: another run has completed it, or it was removed. FailedPrecondition
  /// when another job was begun there since.
  absl::StatusOr<bool> IsInProgress() const;

  /// What a shard may replace.
  struct Claim {
    bool granted = false;    // false: it is not to be written, since it, or the whole job, is complete
    std::string stale_etag;  // of what a killed run has left under its name; "": there is nothing
  };
  /// To be asked right before a shard is written.
  absl::StatusOr<Claim> ClaimShard(uint64_t shard) const;
  /// Right before the commit, where the store does not HoldsIfMatch: removes what is stale, if it is that still.
  absl::Status RemoveStale(uint64_t shard, const std::string& stale_etag) const;

  /// When something else lies, or has come, under the name of a claimed shard: what is there, if it has these bytes.
  /// The same job makes the same bytes, so it was written by another run, or by this one and the answer was lost.
  /// AlreadyExists, with what to do, when it is something else.
  absl::StatusOr<ObjectInfo> Adopt(uint64_t shard, uint64_t bytes, Uint128 digest) const;

  /// What was done, when the job is: at most cleaning up is left.
  const std::optional<PackRecord>& record() const { return record_; }

  /// Looks again, since others work at the job too. False when it is over: done, or not begun any more.
  /// FailedPrecondition as IsInProgress; AlreadyExists when somebody has put a shard there that is not of the job.
  absl::StatusOr<bool> Look();

  /// What came of the job.
  struct Done {
    uint64_t samples = 0;
    uint64_t index_bytes = 0;
    std::vector<SkippedSample> skipped;
    std::vector<std::string> incomplete_objects;  // of the source
  };
  /// After the index: records that the job is done, and what was left out.
  absl::Status Record(const Done& done);
  /// The samples that were left out, when the job is done.
  absl::StatusOr<std::vector<SkippedSample>> ReadSkipped() const;
  /// After the record: removes what belonged to the job.
  absl::Status CleanUp();

  const Location& location() const { return location_; }
  std::string Uri() const { return location_.store->Uri(location_.Key("")); }
  DataKind format() const { return there_.names.format; }
  const PackNames& names() const { return there_.names; }
  /// As Begin or Look have seen it.
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
