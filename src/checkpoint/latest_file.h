#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "checkpoint/save_protocol.h"
#include "store/object_store.h"
#include "transfer/versioned_document.h"

namespace millrace {

/// LATEST, which is read whole and replaced as the version that was read, or not at all
/// (transfer/versioned_document.h). Blocking; not thread-safe; the store must outlive it.
///
/// A store that ignores conditions (FindOutConditions): `LATEST` is compared, written, and compared once more. Of two
/// processes that do that within the same moment both may believe that they have succeeded.
class LatestFile {
 public:
  /// `folder` is "" or ends with '/'.
  LatestFile(ObjectStore& store, const std::string& folder);

  absl::StatusOr<LatestRecord> Read(const std::stop_token& stop) const;

  /// Errors: as the protocols want them (save_protocol.h). A store that refuses conditions is from then on one that
  /// ignores them.
  absl::Status Replace(const CheckpointCatalog& catalog, const std::string& version);

  /// Returns true if the store holds the conditions of writes. Asks it by writes of the object LATEST.conditions, which
  /// the store has to refuse.
  absl::StatusOr<bool> FindOutConditions() const;
  /// What is known of it, by the catalog: then Replace compares for itself.
  void SetConditional(bool conditional) { conditional_ = conditional; }

  /// Of LATEST, for messages.
  std::string Uri() const { return document_.Uri(); }

 private:
  absl::Status ReplaceUnguarded(const std::string& text, const std::string& version) const;

  ObjectStore& store_;
  const std::string key_;
  const VersionedDocument document_;
  bool conditional_ = true;
};

}  // namespace millrace
