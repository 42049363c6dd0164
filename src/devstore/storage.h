#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/bytes.h"
#include "base/status.h"
#include "devstore/checksum.h"
#include "net/http_server.h"

/// Stores hold devstore's buckets, objects and unfinished uploads: in a folder or in memory. Errors are those of
/// s3_error.h.

namespace millrace {

/// Describes a part of an object, as it was uploaded.
struct ObjectPart {
  uint64_t bytes = 0;
  std::string checksum;  // base64, by the algorithm of the object's; empty: none is kept
};

/// Holds the attributes that a client gives an object when it writes it.
struct ObjectAttributes {
  std::string content_type;
  /// Sent back as they are, names in lower case: cache-control, content-encoding, ..., x-amz-meta-*.
  std::vector<std::pair<std::string, std::string>> headers;
  std::optional<Checksum> checksum;
  std::vector<ObjectPart> parts;  // of a multipart upload, in order; empty: put in one piece
};

struct ObjectRecord {
  ObjectAttributes attributes;
  std::string etag;  // without quotes
  uint64_t size = 0;
  int64_t modified_ns = 0;  // since 1970

  int64_t modified_s() const { return modified_ns / 1'000'000'000; }
};

/// Holds immutable bytes. Thread-safe.
class Content {
 public:
  virtual ~Content() = default;
  virtual uint64_t size() const = 0;
  /// Fills `into` from `offset` on; it must be within the content.
  virtual absl::Status Read(uint64_t offset, MutableByteSpan into) const = 0;
  /// Appends steps that send a range of it; they keep it alive.
  virtual void AppendSteps(ByteRange range, std::vector<ReplyStep>* out) const = 0;
};

/// Takes bytes that become an object or a part. If it is destroyed without Finish, or its content is not put, nothing
/// is left. Not thread-safe.
class BlobWriter {
 public:
  virtual ~BlobWriter() = default;
  virtual absl::Status Append(ByteSpan bytes) = 0;
  virtual absl::StatusOr<std::shared_ptr<Content>> Finish() = 0;
};

struct StoredObject {
  std::shared_ptr<const ObjectRecord> record;
  std::shared_ptr<const Content> content;
};

struct BucketInfo {
  std::string name;
  int64_t created_s = 0;
};

struct UploadPart {
  std::string etag;
  std::optional<Checksum> checksum;
  int64_t modified_ns = 0;
  std::shared_ptr<const Content> content;
};

/// Describes an unfinished multipart upload.
struct Upload {
  std::string id;
  std::string bucket;
  std::string key;
  ObjectAttributes attributes;  // checksum: its algorithm and kind, without a value
  int64_t initiated_ns = 0;
  std::map<int, UploadPart> parts;  // by number
};

/// Walks over the keys of a bucket in bytewise order. Not thread-safe; sees changes as they happen.
class KeyWalk {
 public:
  virtual ~KeyWalk() = default;
  /// Returns the first key that is not less than `from`; nullopt at the end.
  virtual absl::StatusOr<std::optional<std::string>> FirstFrom(std::string_view from) = 0;
};

/// Thread-safe. Reads see an object before or after a write of it, whole, never a mixture.
class Storage {
 public:
  /// Looks at the object that a write would replace (nullptr if it does not exist) and may veto the write. Runs under
  /// the storage's lock.
  using Check = absl::FunctionRef<absl::Status(const ObjectRecord*)>;

  virtual ~Storage() = default;

  virtual absl::StatusOr<std::vector<BucketInfo>> Buckets() = 0;     // in order of names
  virtual absl::Status CreateBucket(const std::string& bucket) = 0;  // BucketAlreadyOwnedByYou
  virtual absl::Status DeleteBucket(const std::string& bucket) = 0;  // NoSuchBucket, BucketNotEmpty
  virtual absl::Status CheckBucket(const std::string& bucket) = 0;   // NoSuchBucket

  virtual absl::StatusOr<StoredObject> Open(const std::string& bucket, const std::string& key) = 0;
  /// Does as Open, without the content.
  virtual absl::StatusOr<std::shared_ptr<const ObjectRecord>> Describe(const std::string& bucket,
                                                                       const std::string& key) = 0;
  virtual absl::StatusOr<std::unique_ptr<KeyWalk>> Walk(const std::string& bucket) = 0;
  /// The server is about to end: walks may be long, and fail from now on, also those in progress.
  virtual void StopWalks() {}

  /// `size` is how many bytes are expected.
  virtual absl::StatusOr<std::unique_ptr<BlobWriter>> NewBlob(uint64_t size) = 0;
  /// Joins contents of this storage, in order, into a new one. They do not change.
  virtual absl::StatusOr<std::shared_ptr<Content>> Concatenate(
      const std::vector<std::shared_ptr<const Content>>& contents) = 0;
  /// Makes a content that this storage made an object.
  virtual absl::StatusOr<std::shared_ptr<const ObjectRecord>> Put(const std::string& bucket, const std::string& key,
                                                                  std::shared_ptr<Content> content,
                                                                  ObjectAttributes attributes, std::string etag,
                                                                  Check check) = 0;
  /// To delete an object that does not exist succeeds, unless `check` objects.
  virtual absl::Status Delete(const std::string& bucket, const std::string& key, Check check) = 0;

  /// Returns the new upload's id; `upload` comes without id, time and parts.
  virtual absl::StatusOr<std::string> CreateUpload(Upload upload) = 0;
  virtual absl::Status PutPart(const std::string& upload_id, int number, std::shared_ptr<Content> content,
                               UploadPart part) = 0;
  /// Returns NoSuchUpload also if the id belongs to another bucket or key.
  virtual absl::StatusOr<Upload> FindUpload(const std::string& bucket, const std::string& key,
                                            const std::string& upload_id) = 0;
  /// Returns the uploads of a bucket, ordered by key, then by time; without parts.
  virtual std::vector<Upload> Uploads(const std::string& bucket) = 0;
  virtual absl::Status RemoveUpload(const std::string& upload_id) = 0;
};

/// Serves a folder: its sub-folders are buckets, the files below them objects, keys their paths. Files that other
/// programs put there are served as well. Their symbolic links are followed within ROOT; a target outside of ROOT does
/// not exist for clients. A key that would be written through such a link is kept as one that no path can hold. All
/// else is in ROOT/.devstore: ETags and metadata of what was written through devstore, objects whose keys no path can
/// hold ("a//b", "..", "dir/", a key that is also a folder), unfinished uploads. NotFound if `root` is not a folder.
absl::StatusOr<std::unique_ptr<Storage>> OpenDirStorage(const std::string& root);

/// Objects in memory, up to `limit_bytes` of content; a write that exceeds it is refused with InternalError.
std::unique_ptr<Storage> MakeMemStorage(uint64_t limit_bytes);

/// Returns nanoseconds since 1970.
int64_t NowNs();

}  // namespace millrace
