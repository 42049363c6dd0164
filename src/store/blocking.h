#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "store/object_store.h"

/// These functions are the blocking twins of ObjectStore's calls, for programs and set-up code. Never call them on a
/// thread of a store. A function that takes a token returns Cancelled when the token requests a stop, and leaves the
/// call to end by itself.

namespace millrace {

absl::StatusOr<GetResult> GetBlocking(ObjectStore& store, std::string key, MutableByteSpan into, GetOptions options);
absl::StatusOr<ObjectInfo> HeadBlocking(ObjectStore& store, std::string key, const std::stop_token& stop = {});
absl::StatusOr<ObjectInfo> LearnBlocking(ObjectStore& store, ObjectInfo object, const std::stop_token& stop = {});
absl::StatusOr<ObjectInfo> PutBlocking(ObjectStore& store, std::string key, ByteSpan body, PutOptions options = {});
absl::Status DeleteBlocking(ObjectStore& store, std::string key);
absl::Status DeleteVersionBlocking(ObjectStore& store, std::string key, std::string etag);
absl::StatusOr<ObjectInfo> CommitBlocking(PieceWriter& writer, uint64_t object_bytes);
absl::StatusOr<ListPage> ListBlocking(ObjectStore& store, ListOptions options, const std::stop_token& stop = {});

/// Reads the whole object, pinned to one version. Returns ResourceExhausted above `max_bytes`.
absl::StatusOr<std::string> ReadAll(ObjectStore& store, std::string key, uint64_t max_bytes);
/// Does the same without asking for what a listing or HEAD has reported. Returns FailedPrecondition if the object was
/// replaced since.
absl::StatusOr<std::string> ReadAll(ObjectStore& store, const ObjectInfo& object, uint64_t max_bytes);

using PageSink = absl::FunctionRef<absl::Status(const ListPage&)>;

/// Calls `each` with the objects under `prefix`, in order, some at a time, until one call fails or the last was seen.
/// With a delimiter, pages also have the common prefixes in place of what is below them.
absl::Status ForEachPage(ObjectStore& store, std::string prefix, std::string delimiter, PageSink each,
                         std::stop_token stop = {});

/// Returns all objects under `prefix`, in bytewise order of keys.
absl::StatusOr<std::vector<ObjectInfo>> ListAll(ObjectStore& store, std::string prefix);

}  // namespace millrace
