#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "checkpoint/save_protocol.h"
#include "store/object_store.h"

namespace millrace {

/// LATEST, which is read whole and replaced as the version that was read, or not at all. Blocking; not thread-safe; the
/// store must outlive it.
///
/// - A store that holds If-Match: the object `LATEST`; its version is its ETag.
/// - A folder: files `LATEST.000000000001`, `LATEST.000000000002`, ..., of which the highest counts. The next one is
///   made only if it does not exist (link(2)), which no lock has to guard and which network file systems hold too. It
///   counts only if no higher one exists after that: lower ones are removed, so that a process that was asleep for long
///   could make one of them again.
/// - A store that ignores conditions (FindOutConditions): `LATEST` is compared, written, and compared once more. Of two
///   processes that do that within the same moment both may believe that they have succeeded.
class LatestFile {
 public:
  /// `folder` is "" or ends with '/'.
  LatestFile(ObjectStore& store, const std::string& folder);

  absl::StatusOr<LatestRecord> Read(const std::stop_token& stop) const;

  /// Errors: as the protocols want them (save_protocol.h).
  absl::Status Replace(const CheckpointCatalog& catalog, const std::string& version);

  /// Whether the store holds the conditions of writes. Asks it by requests that it has to refuse; if it does not, they
  /// write what is there already, which this process must have written just now: `catalog`.
  absl::StatusOr<bool> FindOutConditions(const CheckpointCatalog& catalog);
  /// What is known of it, by the catalog: then Replace compares for itself.
  void SetConditional(bool conditional) { conditional_ = conditional; }

  /// Of LATEST, for messages.
  std::string Uri() const { return store_.Uri(key_); }

 private:
  struct Numbered {
    uint64_t number = 0;
    ObjectInfo object;
  };
  absl::StatusOr<std::vector<Numbered>> ListNumbered(const std::stop_token& stop) const;
  absl::StatusOr<LatestRecord> ReadOnce(const std::stop_token& stop) const;
  absl::Status ReplaceNumbered(const std::string& text, const std::string& version) const;
  absl::Status ReplaceObject(const std::string& text, const std::string& version) const;
  absl::Status ReplaceUnguarded(const std::string& text, const std::string& version) const;

  ObjectStore& store_;
  const std::string key_;
  const bool numbered_;
  bool conditional_ = true;
};

}  // namespace millrace
