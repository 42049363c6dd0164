#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "checkpoint/latest_file.h"
#include "checkpoint/records.h"
#include "checkpoint/save_protocol.h"
#include "checkpoint/shard_io.h"
#include "store/stores.h"

namespace millrace {

/// Reads and writes the checkpoints below one URI. `LATEST` names those that are committed; a checkpoint consists of
/// objects below `STEP/ATTEMPT/`, which are never overwritten. Whatever happens to a writer, LATEST names whole
/// checkpoints only. (docs/checkpoints.md; the protocol: save_protocol.h.)
///
/// Blocking; not thread-safe; the Stores and the budget must outlive it. Cancelled soon after a stop is requested.
class Checkpoints {
 public:
  Checkpoints(Location location, MemoryBudget& memory);

  /// Returns the place of the checkpoints, ending with '/': for messages.
  std::string Uri() const { return store_.Uri(folder_); }

  /// Makes this process the one that may commit: all that have claimed earlier may not from now on. Then sweeps what
  /// they have left, if the store holds the conditions of writes, so that it is certain that they will not commit it.
  /// Logs a warning if the store does not hold them.
  absl::Status Claim(const std::stop_token& stop);
  /// Does the same without the sweep. Returns the epoch.
  absl::StatusOr<uint64_t> ClaimWithoutRemoving(const std::stop_token& stop);
  /// Returns 0 before Claim.
  uint64_t epoch() const { return writer_.epoch; }

  struct SaveOptions {
    Retention retention;  // this checkpoint among those that remain
    std::stop_token stop;
  };
  /// Saves a checkpoint, which is then the newest, in place of one of the same step. It is durable, and LATEST names
  /// it, on return. Claims first if that has not been done. The spans must live until the call returns. Returns
  /// FailedPrecondition if another process has claimed the checkpoints. After another error LATEST names what it named
  /// before, unless the message says that it is not known.
  absl::StatusOr<CheckpointEntry> Save(uint64_t step, const std::vector<ShardBytes>& shards,
                                       const SaveOptions& options);

  /// Begins a save whose shards several processes write. One of them begins it and sends the others the step and the
  /// attempt; all upload. The first one finishes with the shards of all, or with the error of one. The promises of Save
  /// hold, whichever of them dies. Begin claims first if that has not been done, and finds out if this process may
  /// commit.
  absl::StatusOr<SaveProtocol> Begin(uint64_t step, const SaveOptions& options);
  /// Writes shards of an attempt. Needs no claim. Up to 64 MiB of memory are kept for the next call.
  absl::StatusOr<std::vector<CheckpointShard>> Upload(uint64_t step, const std::string& attempt,
                                                      const std::vector<ShardBytes>& shards,
                                                      const std::stop_token& stop) const;
  /// Commits, or removes what was uploaded and returns the error.
  absl::StatusOr<CheckpointEntry> Finish(SaveProtocol save, absl::StatusOr<std::vector<CheckpointShard>> uploaded,
                                         const std::stop_token& stop);

  /// Saves a copy of a checkpoint of others, verified. The rest is as for Save.
  absl::StatusOr<CheckpointEntry> Copy(const Checkpoints& from, const CheckpointEntry& entry,
                                       const SaveOptions& options);

  /// Removes the checkpoints that do not remain. It does not claim: a training continues. Returns the removed ones.
  absl::StatusOr<std::vector<CheckpointAttempt>> Retain(const Retention& retention, const std::stop_token& stop);
  /// Finds attempts that killed writers have left and that no process can commit any more: those of epochs before that
  /// of LATEST that are not committed. Finds none if the store does not hold the conditions of writes.
  absl::StatusOr<std::vector<CheckpointAttempt>> FindLeft(const std::stop_token& stop) const;
  /// Removes that. Returns what was removed.
  absl::StatusOr<std::vector<CheckpointAttempt>> RemoveLeft(const std::stop_token& stop) const;

  /// Returns the contents of LATEST; nullopt if it does not exist.
  absl::StatusOr<std::optional<CheckpointCatalog>> ReadCatalog(const std::stop_token& stop = {}) const;

  /// Returns the entry of the newest checkpoint, or of that of `step`; NotFound if it does not exist.
  absl::StatusOr<CheckpointEntry> Find(std::optional<uint64_t> step, const std::stop_token& stop = {}) const;

  /// Returns true if LATEST still names it. A checkpoint that LATEST does not name may be removed at any moment, also
  /// while it is read.
  absl::StatusOr<bool> IsCommitted(const CheckpointEntry& entry, const std::stop_token& stop = {}) const;

  /// Reads the manifest. Returns DataLoss if it is not the one that LATEST names, NotFound if it is gone.
  absl::StatusOr<CheckpointManifest> ReadManifest(const CheckpointEntry& entry) const;

  /// Returns the manifest of the checkpoint that Find returns. If a running training removes that checkpoint meanwhile,
  /// it is the manifest of its successor.
  absl::StatusOr<CheckpointManifest> FindManifest(std::optional<uint64_t> step, const std::stop_token& stop = {}) const;

  /// Reads all shards and verifies all bytes. `into` has memory for each shard of the manifest, of just its size.
  absl::Status Read(const CheckpointManifest& manifest, const std::vector<MutableByteSpan>& into,
                    const std::stop_token& stop) const;

  /// Reads ranges of the shards of a manifest, verified. Returns how many bytes were read (shard_io.h).
  absl::StatusOr<uint64_t> ReadRangesOf(const CheckpointManifest& manifest, std::vector<ShardRange> ranges,
                                        const std::stop_token& stop) const;

  /// Reads a checkpoint and compares every byte with its checksums.
  absl::Status Verify(const CheckpointEntry& entry, const std::stop_token& stop) const;

  struct Verified {
    CheckpointEntry entry;
    absl::Status status;  // as of Verify
  };
  /// Does the same for what Find finds, or for its successor, as FindManifest. An error is that of Find or of reading
  /// LATEST.
  absl::StatusOr<Verified> FindAndVerify(std::optional<uint64_t> step, const std::stop_token& stop) const;

 private:
  absl::Status RunClaim(const std::stop_token& stop);
  absl::Status WriteClaim(ClaimProtocol& claim, bool* asked);
  absl::StatusOr<std::vector<CheckpointAttempt>> ListAttempts(const std::stop_token& stop) const;
  absl::StatusOr<CheckpointEntry> WriteManifest(const CheckpointEntry& entry, std::vector<CheckpointShard> shards);
  absl::Status RemoveAttempt(const CheckpointAttempt& attempt) const;
  void RemoveSuperseded(const std::vector<CheckpointAttempt>& attempts) const;
  std::string Folder(uint64_t step, const std::string& attempt) const { return folder_ + AttemptFolder(step, attempt); }

  ObjectStore& store_;
  MemoryBudget& memory_;
  const std::string folder_;  // "" or ending with '/'
  LatestFile latest_;
  mutable StagingMemory staging_{kMaxStagedBytes};  // which is thread-safe
  CheckpointWriter writer_;
  bool conditional_ = true;
};

}  // namespace millrace
