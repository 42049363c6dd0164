#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "store/object_store.h"

namespace millrace {

/// Keeps a small document in a store that several processes change: it is read whole, and replaced as the version that
/// was read, or not at all. Blocking; not thread-safe; the store must outlive it.
///
/// - A store that holds If-Match: one object; its version is its ETag.
/// - A folder: files `KEY.000000000001`, `KEY.000000000002`, ..., of which the highest counts. The next one is made
/// only
///   if it does not exist (link(2)), which no lock has to guard and which network file systems hold too. It counts only
///   if no higher one exists after that: lower ones are removed, so that a process that was asleep for long could make
///   one of them again.
/// - A store that ignores conditions: the last writer wins.
class VersionedDocument {
 public:
  struct Version {
    std::string text;
    std::string version;  // opaque, for Replace; "": there is no document
  };

  VersionedDocument(ObjectStore& store, std::string key, uint64_t max_bytes);

  /// Returns NotFound only if the bucket does not exist. (A folder that does not exist yet has no document.)
  absl::StatusOr<Version> Read(const std::stop_token& stop) const;

  /// Returns FailedPrecondition for certain if the version was another one. After any other error it may have been
  /// replaced, or be replaced later.
  absl::Status Replace(const std::string& text, const std::string& version) const;

  /// Returns whether it is kept as numbered files, since the store holds no If-Match.
  bool numbered() const { return numbered_; }
  /// Returns the URI for messages.
  std::string Uri() const { return store_.Uri(key_); }

 private:
  struct Numbered {
    uint64_t number = 0;
    ObjectInfo object;
  };
  absl::StatusOr<std::vector<Numbered>> ListNumbered(const std::stop_token& stop) const;
  absl::Status CheckBucket(const std::stop_token& stop) const;
  absl::StatusOr<Version> ReadOnce(const std::stop_token& stop) const;
  absl::Status ReplaceNumbered(const std::string& text, const std::string& version) const;
  absl::Status Lost() const;

  ObjectStore& store_;
  const std::string key_;
  const uint64_t max_bytes_;
  const bool numbered_;
};

}  // namespace millrace
