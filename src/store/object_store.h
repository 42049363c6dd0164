#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/own_folder.h"
#include "s3/object.h"
#include "store/pieces.h"

namespace millrace {

/// Writes one object piece by piece. Nothing is visible before Commit succeeds; an uncommitted writer leaves nothing
/// behind (a temporary file is removed, a multipart upload aborted). Blocking; not thread-safe.
class ObjectWriter {
 public:
  virtual ~ObjectWriter() = default;
  virtual absl::Status Append(ByteSpan bytes) = 0;
  /// Makes the object visible, whole, in place of an older one. The object is durable on return.
  virtual absl::StatusOr<ObjectInfo> Commit() = 0;
};

/// Writes one object by pieces, in any order, several at a time: each is written to its final place. Nothing is visible
/// before Commit succeeds, and an uncommitted writer leaves nothing behind, as with ObjectWriter. The calls come from
/// one thread at a time; destroy it only when all callbacks have run, and not within one.
class PieceWriter {
 public:
  virtual ~PieceWriter() = default;
  /// Writes piece `index`, counted from 0, which begins at `offset` of the object. Returns at once; `bytes` must live
  /// until the callback, which runs on a thread of the store (within the call if the piece is refused) and must not
  /// block. A piece may be written again after that: the later one counts. InvalidArgument for a piece that is empty,
  /// that StoreTraits::pieces does not allow, or that was written with another place or length before.
  ///
  /// `crc32c` is that of `bytes`, if the caller has made it already. A store that sends a CRC32C with each piece sends
  /// this one, and makes none again; DataLoss if it is not that of what has arrived. The other stores ignore it.
  virtual void Write(size_t index, uint64_t offset, ByteSpan bytes, std::optional<uint32_t> crc32c,
                     DoneCallback done) = 0;
  /// Makes the object visible, whole, in place of an older one. Call it once, when no callback is due. The object is
  /// durable when the callback runs. FailedPrecondition unless the pieces are `object_bytes` without a gap,
  /// InvalidArgument if one of them is too short for StoreTraits::pieces. (CommitBlocking: store/blocking.h.)
  virtual void Commit(uint64_t object_bytes, PutCallback done) = 0;
};

/// Describes what a store is, and what suits it. It is plain data that stays as it is while the store lives. A store
/// around another one has the same traits, except for those that it changes.
struct StoreTraits {
  enum class Medium { kS3, kFolder, kMemory };
  Medium medium = Medium::kMemory;  // code outside this module asks for the capabilities below
  std::string root;              // what all URIs of its objects begin with: "s3://bucket/", "/folder/", "mem://name/"
  std::string bucket;            // of kS3
  std::string identity;          // what distinguishes it from others with that root: the endpoint, or `within`; else ""
  std::string principal;         // of kS3: whose credentials read it (s3/config.h); "": anybody may
  std::optional<OwnFolder> own;  // of kFolder: it is the program's own, and only files of its user are read
  std::vector<std::string> within;  // of kFolder: only files in these folders are read; empty: whatever links reach
  /// The store delivers about this many bytes in the time that one more request costs while many are in flight. If two
  /// ranges are closer together than that, it is better to read the bytes between them, too.
  uint64_t gap_bytes = uint64_t{16} << 10;
  int lists_at_once = 1;       // how many listings at once are faster than one
  PieceLimits pieces;          // of a PieceWriter
  bool holds_if_match = true;  // whether PutOptions::if_match is held; else it is refused with InvalidArgument
  /// If true, a read that names the ETag of a version which was replaced may get its bytes all the same.
  bool keeps_versions = false;
  /// Stores that have the same pointer here, and not null, copy objects of each other without their bytes coming here.
  const void* copies_among = nullptr;

  /// Keys are paths of files below `root`: programs can rename, map and lock them, and links and other files are there.
  bool is_folder() const { return medium == Medium::kFolder; }
  /// A service holds the objects: their bytes travel, and the service knows checksums. Its bucket must exist.
  bool is_remote() const { return medium == Medium::kS3; }
  /// The objects end with this process: there is nothing to cache or to lock.
  bool is_memory() const { return medium == Medium::kMemory; }
};

/// Holds objects under keys: one bucket of S3, a folder, or memory. Keys are any bytes without NUL, 1 to 1,024 of them,
/// and are never normalized; a folder refuses those that it cannot hold ("..", absolute, an empty component) with
/// InvalidArgument.
///
/// Thread-safe. Each call returns at once and its callback runs exactly once, on a thread of the store (a callback must
/// not block); buffers and `progress` must live until then. The destructor cancels what is in flight and waits for the
/// callbacks. Blocking twins: store/blocking.h.
///
/// Errors have the codes of base/status.h. Messages begin with the URI of the object. Nothing above a store retries but
/// WholeCheck.
///
/// A store may be put around another one (Stores, store/testing/forwarding_store.h). All that a caller may ask of a
/// store is below and in its traits, so nobody needs to know its class.
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;
  ObjectStore(const ObjectStore&) = delete;
  ObjectStore& operator=(const ObjectStore&) = delete;

  const StoreTraits& traits() const { return traits_; }

  /// Returns "s3://bucket/key", "/folder/key", "mem://name/key": for messages and reports.
  std::string Uri(std::string_view key) const;

  /// Reads options.range into `into` (of just that length). OutOfRange when the object ends before the range does,
  /// FailedPrecondition when it does not have the ETag `if_match`, DataLoss when a checksum keeps failing.
  /// An empty range of an existing object succeeds.
  virtual void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) = 0;

  virtual void Head(std::string key, HeadOptions options, HeadCallback done) = 0;

  /// Writes a whole object; `body` must live until the callback. The result carries the new ETag and size.
  virtual void Put(std::string key, ByteSpan body, PutOptions options, PutCallback done) = 0;

  /// Returns true if this store copies objects of `other` by itself, so that their bytes need not come here.
  bool CopiesFrom(const ObjectStore& other) const;

  /// Copies an object of a store that it CopiesFrom, with its type and metadata, in place of an older one. `source`
  /// comes from Head or List; FailedPrecondition if it has another ETag by now. Unimplemented if the server turns out
  /// not to copy: nothing was written, and reading and writing it remains. The result carries the new ETag and size.
  virtual void Copy(const ObjectStore& from, ObjectInfo source, std::string key, CopyOptions options, PutCallback done);

  /// Deletes 1 to 1,000 keys, each with a status of its own; by one request if the store has one. Deleting what does
  /// not exist succeeds.
  virtual void Delete(std::vector<std::string> keys, DeleteCallback done) = 0;

  /// Deletes an object if it has that ETag, which is not empty; FailedPrecondition if it has another. Some stores do
  /// not know the condition and delete it all the same, so the caller looks first. A folder looks right before it
  /// removes the file.
  virtual void DeleteVersion(std::string key, std::string etag, DoneCallback done) = 0;

  /// Lists one page of keys in bytewise order. A prefix that matches nothing gives an empty page; a missing bucket or
  /// folder gives NotFound.
  virtual void List(ListOptions options, ListCallback done) = 0;

  /// Starts an object that is written by pieces. It costs no request, but reports at once what is already known to be
  /// wrong, such as a folder that cannot be written to. May block for a file system.
  virtual absl::StatusOr<std::unique_ptr<PieceWriter>> WritePieces(std::string key, PutOptions options) = 0;

  /// Starts an object whose size is not known yet (store/stream_writer.h). The store must outlive the writer.
  absl::StatusOr<std::unique_ptr<ObjectWriter>> Write(std::string key, PutOptions options);

  /// Removes what writers that were killed have left in the folder that `prefix` names ("" or ending with '/', not what
  /// is deeper). Blocking. Folders keep temporary files, and can distinguish those of living writers. The other stores
  /// keep nothing that can be distinguished from the work of others.
  virtual absl::Status RemoveTemporary(const std::string& prefix);

  virtual const RequestCounters& counters() const = 0;

 protected:
  explicit ObjectStore(StoreTraits traits) : traits_(std::move(traits)) {}

  StoreTraits traits_;  // complete before the first call
};

}  // namespace millrace
