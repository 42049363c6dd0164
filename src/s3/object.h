#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/bytes.h"
#include "base/status.h"

/// This is the vocabulary of object stores: what every ObjectStore and the S3 client take and answer. Plain data.

namespace millrace {

/// Holds a checksum of a whole object, as the store keeps it.
struct ObjectChecksum {
  enum class Kind { kCrc32, kCrc32c, kCrc64Nvme, kMd5 };
  Kind kind = Kind::kCrc32c;
  std::string digest;  // its bytes, the most significant first
  uint32_t parts = 0;  // 0: of the bytes; else ("COMPOSITE") of the checksums of so many parts, one after another
};

struct ObjectInfo {
  std::string key;
  uint64_t size = 0;
  std::string etag;                        // without quotes; opaque
  int64_t modified_ms = 0;                 // since 1970; 0 when unknown
  std::optional<ObjectChecksum> checksum;  // Head returns it if the store has one; Put, if it was sent
  uint64_t part_bytes = 0;  // of each part it was uploaded in, but the last; 0: only HeadOptions::parts returns it
};

/// An object with what is kept beside its bytes and belongs to a copy of it.
struct ObjectDescription {
  ObjectInfo info;
  std::string content_type;
  std::vector<std::pair<std::string, std::string>> headers;  // Cache-Control, ..., x-amz-meta-*
};

/// Holds labels that a store keeps of an object, in its order: names and values.
using ObjectTags = std::vector<std::pair<std::string, std::string>>;

/// Says what a request is waiting for right now. Written by the client, read by the ledger that accounts for waiting.
enum class RequestPhase : uint8_t { kQueued, kCredentials, kConnect, kFirstByte, kBody, kThrottled, kOutage, kDone };

using RequestProgress = std::atomic<RequestPhase>;

/// No store keeps larger objects (AWS: 50 TB): a server that reports a larger one is not believed.
inline constexpr uint64_t kMaxObjectBytes = uint64_t{1} << 46;
/// Returns DataLoss for a size above it. The message does not name the object.
absl::Status CheckObjectBytes(uint64_t bytes);

/// Describes a part of the object whose CRC32C is known.
struct SpanChecksum {
  ByteRange range;  // of the object, within the range that is read
  uint32_t crc32c = 0;
};

struct GetOptions {
  ByteRange range;                      // must be within the object
  std::string if_match;                 // ETag that the object must have; empty = any
  std::vector<SpanChecksum> checksums;  // verified; a mismatch is fetched again, then DataLoss
  /// If set, and they stay damaged: which of their ranges are, in the order of `checksums`; the others hold what was
  /// asked for. Outlives the callback.
  std::vector<ByteRange>* damaged = nullptr;
  bool whole = false;  // the range is the object: checked against the checksum that the store keeps
  bool part = false;   // the range is one of its stored parts: checked, too, if the store says its checksum
  RequestProgress* progress = nullptr;  // outlives the callback
  std::stop_token stop;                 // when requested, the callback gets Cancelled soon
};

struct GetResult {
  std::string etag;
  uint64_t object_size = 0;  // of the whole object
  bool verified = false;     // GetOptions::whole or ::part: the bytes match a checksum that the store keeps of them
};

struct HeadOptions {
  /// Asks for ObjectInfo::part_bytes, if the store knows it, and maybe instead of the checksum.
  bool parts = false;
};

struct PutOptions {
  std::string content_type;
  bool only_if_absent = false;  // AlreadyExists when there is an object of that key
  std::string if_match;         // ETag of the object that it replaces: FailedPrecondition when it has another
  uint32_t most_mode = 0777;    // permissions that a new file may have, less the umask. S3 keeps none
  int64_t modified_ms = 0;      // the time of a file's last change, since 1970; 0: now. S3 does not keep it
  std::stop_token stop;         // when requested, the callback, or a call of a writer that waits, gets Cancelled soon
};

/// These options are of a copy that the store makes.
struct CopyOptions {
  /// If this is set, an object of that key makes the copy fail with AlreadyExists. Some stores do not know this
  /// condition of a copy, and ignore or refuse it; then the copy is made without it, so the caller looks first.
  bool only_if_absent = false;
  std::function<void(uint64_t bytes)> moved;  // adds up to the object's size; on any thread, and must not block
  std::stop_token stop;                       // when requested, the callback gets Cancelled soon
};

/// These options are of a multipart upload, when it is begun.
struct UploadOptions {
  std::string content_type;
  std::vector<std::pair<std::string, std::string>> headers;  // further ones, as in ObjectDescription
  bool checksum = true;  // the parts will come with checksums; false: the store copies them from objects
  std::stop_token stop;
};

struct CompleteOptions {
  bool only_if_absent = false;                 // as in PutOptions
  std::string if_match;                        // as in PutOptions
  std::optional<ObjectChecksum> checksum;      // of the whole object, for the store to check
  std::vector<ObjectChecksum> part_checksums;  // of the parts: of all or none
};

struct ListOptions {
  std::string prefix;        // of the key; "" = all
  std::string delimiter;     // "" or "/"
  std::string start_after;   // keys greater than this one
  std::string continuation;  // from the page before; empty for the first
  int max_keys = 1000;
};

struct ListPage {
  std::vector<ObjectInfo> objects;           // in bytewise order of keys
  std::vector<std::string> common_prefixes;  // when a delimiter was given
  std::string continuation;                  // empty: this was the last page
};

using GetCallback = absl::AnyInvocable<void(absl::StatusOr<GetResult>)>;
using HeadCallback = absl::AnyInvocable<void(absl::StatusOr<ObjectInfo>)>;
using DescribeCallback = absl::AnyInvocable<void(absl::StatusOr<ObjectDescription>)>;
using TagsCallback = absl::AnyInvocable<void(absl::StatusOr<ObjectTags>)>;
using PutCallback = absl::AnyInvocable<void(absl::StatusOr<ObjectInfo>)>;
using DoneCallback = absl::AnyInvocable<void(absl::Status)>;
/// Receives a status for each key, in the order given.
using DeleteCallback = absl::AnyInvocable<void(std::vector<absl::Status>)>;
using ListCallback = absl::AnyInvocable<void(absl::StatusOr<ListPage>)>;

/// Requests made and bytes received, for reports. Counters only grow. Thread-safe.
struct RequestCounters {
  std::atomic<uint64_t> get{0};
  std::atomic<uint64_t> head{0};
  std::atomic<uint64_t> put{0};  // PUT and POST
  std::atomic<uint64_t> list{0};
  std::atomic<uint64_t> del{0};
  std::atomic<uint64_t> retries{0};  // attempts beyond the first, counted in the others too
  std::atomic<uint64_t> hedges{0};   // second requests beside late ones, counted in the others too
  std::atomic<uint64_t> bytes_read{0};
};

}  // namespace millrace
