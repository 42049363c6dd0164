#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "s3/object.h"
#include "store/pieces.h"

namespace millrace {

/// Writes one object piece by piece. Nothing is visible before Commit succeeds; an uncommitted writer leaves nothing
/// behind (a temporary file is removed, a multipart upload aborted). Blocking; not thread-safe.
class ObjectWriter {
 public:
  virtual ~ObjectWriter() = default;
  virtual absl::Status Append(ByteSpan bytes) = 0;
  /// Makes the object visible, whole, in place of an older one. Durable on return.
  virtual absl::StatusOr<ObjectInfo> Commit() = 0;
};

/// Writes one object, of a size that is known, by its Pieces in any order, several at a time: each lands in its final
/// place. Nothing is visible before Commit succeeds, and an uncommitted writer leaves nothing behind, as with
/// ObjectWriter. Not thread-safe; destroy it only when all callbacks have run.
class PieceWriter {
 public:
  virtual ~PieceWriter() = default;
  /// Writes the piece of that index. Returns at once (but may hash the bytes, which takes milliseconds); `bytes` must
  /// live until the callback, which runs on a thread of the store (within the call where index or length are wrong) and
  /// must not block. A piece may be written again after that: the later one counts.
  virtual void Write(size_t index, ByteSpan bytes, DoneCallback done) = 0;
  /// Makes the object visible, whole, in place of an older one: FailedPrecondition unless every piece was written.
  /// Call it when no callback is due. Blocking. Durable on return.
  virtual absl::StatusOr<ObjectInfo> Commit() = 0;
};

/// Objects under keys: one bucket of S3, a folder, or memory. Keys are any bytes without NUL, 1 to 1,024 of them, and
/// are never normalised; a folder refuses those that it cannot hold ("..", absolute, an empty component) with
/// InvalidArgument.
///
/// Thread-safe. Each call returns at once and its callback runs exactly once, on a thread of the store (a callback must
/// not block); buffers and `progress` must live until then. The destructor cancels what is in flight and waits for the
/// callbacks. Blocking twins: store/blocking.h.
///
/// Errors: see base/status.h. Messages begin with the URI of the object. Nothing above a store retries but WholeCheck.
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  /// "s3://bucket/key", "/folder/key", "mem://name/key": for messages and reports.
  virtual std::string Uri(std::string_view key) const = 0;

  /// What tells this store from others of the same URI: of a bucket the endpoint, else "".
  virtual std::string Identity() const { return {}; }

  /// Reads options.range into `into` (of just that length). OutOfRange when the object ends before the range does,
  /// FailedPrecondition when it does not have the ETag `if_match`, DataLoss when a checksum keeps failing.
  /// An empty range of an existing object succeeds.
  virtual void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) = 0;

  virtual void Head(std::string key, HeadCallback done) = 0;

  /// Head with ObjectInfo::part_bytes where the store knows it, and maybe without the checksum.
  virtual void HeadParts(std::string key, HeadCallback done) { Head(std::move(key), std::move(done)); }

  /// Writes a whole object; `body` must live until the callback. The result carries the new ETag and size.
  virtual void Put(std::string key, ByteSpan body, PutOptions options, PutCallback done) = 0;

  /// Whether the server of this store copies objects of `other` by itself, so that their bytes need not come here.
  virtual bool CopiesFrom(const ObjectStore& /*other*/) const { return false; }

  /// Copies an object of a store that it CopiesFrom, with its type and metadata, in place of an older one. `source`
  /// comes from Head or List; FailedPrecondition when it has another ETag by now. Unimplemented when the server turns
  /// out not to copy: nothing was written, and reading and writing it remains. The result carries the new ETag and
  /// size.
  virtual void Copy(const ObjectStore& from, ObjectInfo source, std::string key, CopyOptions options, PutCallback done);

  /// Whether PutOptions::if_match is held; FailedPrecondition otherwise.
  virtual bool HoldsIfMatch() const { return true; }

  /// Deleting what does not exist succeeds.
  virtual void Delete(std::string key, DoneCallback done) = 0;

  /// Deletes 1 to 1,000 keys: each as Delete does, with a status of its own. By one request where the store has one.
  virtual void DeleteMany(std::vector<std::string> keys, DeleteManyCallback done);

  /// One page of keys in bytewise order. A prefix that matches nothing gives an empty page; a missing bucket or folder
  /// NotFound.
  virtual void List(ListOptions options, ListCallback done) = 0;

  /// How many bytes it delivers in the time that a request more costs where many are in flight: who wants two ranges
  /// that lie closer together does well to read what lies between them.
  virtual uint64_t BytesWorthARequest() const { return uint64_t{16} << 10; }

  /// How many listings at once are faster than one.
  virtual int ListsAtOnce() const { return 1; }

  /// Starts an object that is too large for one Put.
  virtual absl::StatusOr<std::unique_ptr<ObjectWriter>> Write(std::string key, PutOptions options) = 0;

  /// Starts one whose size is known and not 0. InvalidArgument for pieces that are not within piece_limits().
  virtual absl::StatusOr<std::unique_ptr<PieceWriter>> WritePieces(std::string key, Pieces pieces,
                                                                   PutOptions options) = 0;
  virtual PieceLimits piece_limits() const { return {}; }

  /// Removes what writers that were killed have left in the folder that `prefix` names ("" or ending with '/', not what
  /// lies deeper). Blocking. Folders keep temporary files, and can tell those of living writers; the other stores keep
  /// nothing that can be told from the work of others.
  virtual absl::Status RemoveTemporary(const std::string& prefix);

  virtual const RequestCounters& counters() const = 0;
};

}  // namespace millrace
