#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "checkpoint/save_protocol.h"
#include "store/object_store.h"
#include "transfer/versioned_document.h"

namespace millrace {

/// Is LATEST, which is read whole and replaced as the version that was read, or not at all
/// (transfer/versioned_document.h). Blocking; not thread-safe; the store must outlive it.
///
/// If a store ignores conditions (FindOutConditions), `LATEST` is compared, written, and compared once more. If two
/// processes do that within the same moment, both may believe that they have succeeded. A request for LATEST that
/// arrives late, after it was sent again, would bring back an old catalog. So each catalog is also written to an object
/// of its own, LATEST.copies/EPOCH-NUMBER-ID. The one of the latest epoch decides, and among these the one with the
/// highest number.
class LatestFile {
 public:
  /// `folder` is "" or ends with '/'.
  LatestFile(ObjectStore& store, const std::string& folder);

  absl::StatusOr<LatestRecord> Read(const std::stop_token& stop) const;

  /// Replaces LATEST. Errors are as the protocols want them (save_protocol.h). The catalog says whether the store holds
  /// the conditions of writes: if not, Replace compares for itself.
  absl::Status Replace(const CheckpointCatalog& catalog, const std::string& version);

  /// Returns true if the store holds the conditions of writes. Asks it by writes of the object LATEST.conditions, which
  /// the store has to refuse.
  absl::StatusOr<bool> FindOutConditions() const;

  /// Returns the URI of LATEST, for messages.
  std::string Uri() const { return document_.Uri(); }

 private:
  absl::Status Lost() const;
  absl::Status ReplaceUnguarded(const CheckpointCatalog& catalog, const std::string& version);
  absl::StatusOr<std::string> ObjectVersion(const std::string& version) const;
  absl::StatusOr<std::vector<std::string>> ListCopies(const std::stop_token& stop) const;
  absl::StatusOr<LatestRecord> NewestOf(LatestRecord latest, const std::stop_token& stop) const;

  ObjectStore& store_;
  const std::string key_;
  const std::string copies_;  // what the keys of copies begin with
  const VersionedDocument document_;
  uint64_t copy_number_ = 0;  // of the last copy that this process began to write, which may arrive late
};

}  // namespace millrace
