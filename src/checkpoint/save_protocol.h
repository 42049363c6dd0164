#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/records.h"

/// These state machines without I/O make a process the one that may commit, and commit a checkpoint. A driver does the
/// step that next() asks for, and reports the outcome by the On... call of that step, until kDone.
///
/// All safety comes from one rule: LATEST is replaced only as the version that was read. So if a process has read
/// LATEST, found itself in it, and then replaces just that version, it knows that no other process has claimed it
/// meanwhile.

namespace millrace {

/// Holds LATEST as it was read.
struct LatestRecord {
  std::optional<CheckpointCatalog> catalog;  // nullopt: there is no LATEST
  std::string version;                       // opaque, for replacing it
};

/// A driver answers an attempt to replace LATEST with OK or an error. FailedPrecondition means for certain that the
/// version was another one. After any other error LATEST may have been replaced, or be replaced later.
///
/// Claims the checkpoints: reads LATEST, replaces it by one with the next epoch and this writer's id.
class ClaimProtocol {
 public:
  enum class Step { kReadLatest, kWriteLatest, kDone };

  explicit ClaimProtocol(std::string writer_id) : id_(std::move(writer_id)) {}

  Step next() const { return step_; }
  void OnLatest(absl::StatusOr<LatestRecord> latest);
  void OnWritten(absl::Status status);

  /// Returns the catalog for kWriteLatest.
  const CheckpointCatalog& to_write() const { return catalog_; }
  const std::string& version() const { return version_; }
  /// The status is valid in kDone. If it is OK, to_write() is the contents of LATEST when it was claimed.
  const absl::Status& status() const { return status_; }

 private:
  void End(absl::Status status);

  const std::string id_;
  Step step_ = Step::kReadLatest;
  int tries_ = 0;
  absl::Status unsure_;  // the error after which LATEST may have been written
  CheckpointCatalog catalog_;
  std::string version_;
  absl::Status status_;
};

/// Says which checkpoints remain once a newer one is committed.
struct Retention {
  uint64_t keep = 0;                      // the newest ones, so many; 0: all of them
  uint64_t keep_every = 0;                // besides these, all whose step is a multiple of it; 0: none
  std::vector<uint64_t> keep_steps = {};  // and these steps
};

/// Names a folder of an attempt that nobody needs any more.
struct CheckpointAttempt {
  uint64_t step = 0;
  std::string attempt;
  friend bool operator==(const CheckpointAttempt&, const CheckpointAttempt&) = default;
};

/// Takes out of the catalog what does not remain, and returns it.
std::vector<CheckpointAttempt> Supersede(CheckpointCatalog& catalog, const Retention& retention);

/// Saves one checkpoint. It checks that LATEST names this writer, uploads the shards, writes the manifest, and replaces
/// LATEST. Then it removes the objects that LATEST no longer names. A failure before LATEST is replaced removes the
/// uploads. If it is unknown whether LATEST was replaced, they stay, since they may be needed; a later claim sweeps
/// them. After a failed upload LATEST is read once more. A successor that has claimed the checkpoints may have swept
/// the uploads, and then its claim is the reason.
class SaveProtocol {
 public:
  enum class Step { kReadLatest, kUpload, kWriteManifest, kWriteLatest, kRemove, kDone };
  struct Job {
    CheckpointWriter writer;
    CheckpointEntry entry;  // step and attempt
    Retention retention;
  };

  explicit SaveProtocol(Job job) : job_(std::move(job)) {}

  Step next() const { return step_; }
  void OnLatest(absl::StatusOr<LatestRecord> latest);
  void OnUploaded(absl::Status status);
  /// Takes the entry as LATEST is to name it.
  void OnManifest(absl::StatusOr<CheckpointEntry> entry);
  void OnWritten(absl::Status status);
  void OnRemoved();

  /// Returns the catalog for kWriteLatest.
  const CheckpointCatalog& to_write() const { return catalog_; }
  const std::string& version() const { return version_; }
  /// Returns what kRemove removes. Failures there are nobody's loss: a later claim sweeps what is left.
  const std::vector<CheckpointAttempt>& to_remove() const { return to_remove_; }
  /// The status is valid in kDone. It is OK if the checkpoint is committed. It is FailedPrecondition if another writer
  /// has claimed the checkpoints, and Unavailable, or another error of the store, if the save failed.
  const absl::Status& status() const { return status_; }
  const CheckpointEntry& entry() const { return job_.entry; }

 private:
  absl::Status CheckWriter(const LatestRecord& latest) const;
  absl::Status CheckRoom(const CheckpointCatalog& catalog) const;
  void Commit(CheckpointCatalog catalog);
  void Committed();
  void Fail(absl::Status status);
  void FailedToWrite(absl::Status status);
  void Leave(absl::Status status);
  void AfterUnsure(const absl::StatusOr<LatestRecord>& latest);

  Job job_;
  Step step_ = Step::kReadLatest;
  bool uploading_ = false;  // there may be something in the folder of the attempt
  bool manifest_written_ = false;
  int tries_ = 0;
  absl::Status failed_;  // the error of the upload, or of the manifest
  absl::Status unsure_;  // the error after which LATEST may have been replaced
  CheckpointCatalog catalog_;
  std::string version_;
  std::vector<CheckpointAttempt> superseded_;  // by catalog_
  std::vector<CheckpointAttempt> to_remove_;
  absl::Status status_;
};

/// Removes checkpoints that a retention does not keep: from LATEST first, then their objects. It does not claim. The
/// process that may commit continues, since it builds upon the version that it reads.
class RetainProtocol {
 public:
  enum class Step { kReadLatest, kWriteLatest, kRemove, kDone };

  explicit RetainProtocol(const Retention& retention) : retention_(retention) {}

  Step next() const { return step_; }
  void OnLatest(absl::StatusOr<LatestRecord> latest);
  void OnWritten(absl::Status status);
  void OnRemoved();

  /// Returns the catalog for kWriteLatest.
  const CheckpointCatalog& to_write() const { return catalog_; }
  const std::string& version() const { return version_; }
  /// Returns what kRemove removes; in kDone, what was removed.
  const std::vector<CheckpointAttempt>& to_remove() const { return superseded_; }
  /// The status is valid in kDone.
  const absl::Status& status() const { return status_; }

 private:
  void End(absl::Status status);

  const Retention retention_;
  Step step_ = Step::kReadLatest;
  int tries_ = 0;
  CheckpointCatalog catalog_;
  std::string version_;
  std::vector<CheckpointAttempt> superseded_;
  absl::Status status_;
};

}  // namespace millrace
