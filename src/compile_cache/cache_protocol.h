#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compile_cache/cache_record.h"

/// With these state machines without I/O, a host finds cached files or becomes the one that compiles, and publishes the
/// files that it has compiled. A driver does the step that next() asks for, and reports the outcome by the On... call
/// of that step, until kDone. All safety comes from one rule: the record is replaced only as the version that was read.

namespace millrace {

/// Holds the record as it was read.
struct CacheVersion {
  CacheRecord record;   // an empty one if there is none
  std::string version;  // opaque, for replacing it
};

/// A driver answers an attempt to replace the record with OK or an error. FailedPrecondition means for certain that the
/// version was another one. After any other error the record may have been replaced.
///
/// Waits while another host compiles, and takes its place if it stops renewing its lease. Clocks of hosts are not
/// compared: each one watches by its own how long a lease has not changed.
class StartProtocol {
 public:
  using Milliseconds = std::chrono::milliseconds;
  enum class Step { kRead, kWrite, kWait, kDone };
  enum class Outcome {
    kWarm,      // something was published: record() says what
    kCompile,   // nothing was; this host holds the lease
    kTimedOut,  // nothing was, and another host has compiled for longer than the limit
    kFailed,    // status() says why; nothing is known
  };
  struct Job {
    CompileLease lease;       // of this host
    std::string about;        // of a new record
    Milliseconds limit{0};    // of all the time that it waits for another host
    Milliseconds poll{2000};  // between looks
  };

  explicit StartProtocol(Job job) : job_(std::move(job)) {}

  Step next() const { return step_; }
  /// `now` is the time since any moment, the same one for all calls.
  void OnRead(absl::StatusOr<CacheVersion> read, Milliseconds now);
  void OnWritten(absl::Status status);
  void OnWaited();

  /// Returns the record for kWrite.
  const CacheRecord& to_write() const { return record_; }
  const std::string& version() const { return version_; }
  /// Returns how long kWait waits.
  Milliseconds pause() const { return pause_; }
  /// Returns the host for which it waits, and whose lease it has taken; "" if there is no such host.
  const std::string& other_host() const { return other_host_; }

  /// The outcome is valid in kDone.
  Outcome outcome() const { return outcome_; }
  const CacheRecord& record() const { return record_; }
  const absl::Status& status() const { return status_; }

 private:
  void End(Outcome outcome, absl::Status status = absl::OkStatus());
  void Take();
  void WaitFor(const CompileLease& lease, Milliseconds now);

  const Job job_;
  Step step_ = Step::kRead;
  Outcome outcome_ = Outcome::kFailed;
  int tries_ = 0;
  absl::Status unsure_;  // the error after which it may have been written
  CacheRecord record_;
  std::string version_;
  Milliseconds pause_{0};
  std::optional<CompileLease> watched_;
  Milliseconds watched_since_{0};
  std::optional<Milliseconds> began_;  // waiting
  std::string other_host_;
  absl::Status status_;
};

/// Publishes files, removes refused ones from the record, evicts the oldest groups above the bound, and gives the lease
/// back. If the record already has a file under a path, that file stays: the first host that stores a path wins.
class PublishProtocol {
 public:
  enum class Step { kRead, kUpload, kWrite, kRemove, kDone };
  struct Job {
    std::string holder;               // gives back the lease of this holder
    std::string about;                // of a new record
    std::vector<CachedFile> files;    // that this host has
    std::vector<CachedFile> refused;  // whose objects are damaged or missing, as the record had them
    uint64_t max_bytes = UINT64_MAX;  // of all files of the record
    bool publishes = true;            // false: only the lease is given back, and refused files are taken out
  };

  explicit PublishProtocol(Job job);

  Step next() const { return step_; }
  void OnRead(absl::StatusOr<CacheVersion> read);
  /// Takes the objects, by SHA-256, that could not be uploaded: their groups are left out.
  void OnUploaded(const std::set<std::string>& failed);
  void OnWritten(absl::Status status);
  void OnRemoved();

  /// Returns the files for kUpload, whose objects may be missing, each object once.
  const std::vector<CachedFile>& to_upload() const { return to_upload_; }
  /// Returns the record for kWrite.
  const CacheRecord& to_write() const { return merged_; }
  const std::string& version() const { return version_; }
  /// Returns the objects for kRemove, which nothing needs any more. Failures there cost space only.
  const std::set<std::string>& to_remove() const { return to_remove_; }
  /// Returns how often another process was quicker: the driver pauses longer with each time.
  int tries() const { return tries_; }

  /// The status is valid in kDone. It is OK if the record has all files that can be had; record() then returns it.
  const absl::Status& status() const { return status_; }
  const CacheRecord& record() const { return merged_; }
  /// Returns the number of files of this host that the record has now.
  uint64_t added() const { return added_; }

 private:
  void End(absl::Status status);
  void Merge();
  void Evict();

  const Job job_;
  std::map<std::string, CachedFile> refused_;  // by path
  std::set<std::string> failed_;               // objects
  std::set<std::string> uploaded_;             // objects
  Step step_ = Step::kRead;
  int tries_ = 0;
  CacheRecord read_;
  std::string version_;
  CacheRecord merged_;
  std::vector<CachedFile> to_upload_;
  std::set<std::string> to_remove_;
  uint64_t added_ = 0;
  absl::Status status_;
};

}  // namespace millrace
