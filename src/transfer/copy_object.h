#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "absl/functional/any_invocable.h"
#include "store/object_store.h"

namespace millrace {

/// Says what shows that the bytes of a copy are those of its source.
enum class CopyCheck {
  kMatches,    // a checksum that the source's store keeps; or no bytes came over a network to this machine
  kReadTwice,  // they came the same twice
  kNone,       // nothing: the store keeps no checksum that these bytes could be held against
};

struct CopiedObject {
  ObjectInfo info;
  CopyCheck check = CopyCheck::kMatches;
};

struct CopyObjectOptions {
  /// Called for bytes that have landed, each once; on any thread, and must not block.
  std::function<void(uint64_t bytes)> moved;
  /// Called if the bytes have to come through this machine, before they do; may wait for room. Its error is that of the
  /// copy.
  std::function<absl::Status()> before_moving;
  /// Says whether the bytes come through this machine even if the store copies by itself.
  bool through = false;
  /// Says whether bytes that would be copied unverified (CopyCheck::kNone) are read twice: DataLoss if they differ.
  bool read_twice = false;
  /// If this is set, an object in its place is AlreadyExists for the copy. The bytes come through this machine then.
  bool only_if_absent = false;
  /// S3 is to report this as the type of the bytes; "": by the name of the copy (content_type.h). It has no effect if
  /// the store copies.
  std::string content_type;
  std::stop_token stop;
};

/// Copies an object between stores, or within one, in place of an older one; it appears whole or not at all. A file
/// gets the time of its source's last change, so that a comparison of the two finds no news. A new file that is copied
/// from a file has no permissions that its source does not have. `source` comes from Head
/// or List and is pinned by its ETag: FailedPrecondition if the store has another version by now.
///
/// If the store copies by itself (ObjectStore::CopiesFrom; on S3 store/s3_copy.h), it does, with type and metadata.
/// Otherwise, or if it turns out that it does not, the bytes come through this machine. They are checked against the
/// checksum that the source's store keeps (store/whole_check.h).
///
/// Up to 8 MiB are copied by one read and one write, more in pieces. Pieces are written to their final places in the
/// order in which they arrive, so that one that is late holds up no other. Two to eight pieces are in flight, 64 MiB of
/// them if they are small enough. Returns ResourceExhausted, before anything is read or written, if an object is so
/// large that the pieces in flight would take more than a quarter of the memory.
///
/// Blocking; Cancelled soon after a stop is requested. DataLoss if what was written has another size.
absl::StatusOr<CopiedObject> CopyObject(ObjectStore& from, const ObjectInfo& source, ObjectStore& to,
                                        const std::string& key, const CopyObjectOptions& options = {});

/// Copies an object of at most kPieceBytes whose bytes come through this machine, without waiting for it. So many small
/// objects need no thread each. `before_moving` is not called. `done` is called on a thread of one of the stores, which
/// must live until then. `to` gets the bytes on that thread, and S3's threads must not make checksums of bytes that are
/// written. So one of the two stores must not be S3.
using CopyCallback = absl::AnyInvocable<void(absl::StatusOr<CopiedObject>)>;
void CopySmallObject(ObjectStore& from, ObjectInfo source, ObjectStore& to, std::string key, CopyObjectOptions options,
                     CopyCallback done);

}  // namespace millrace
