#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "s3/object.h"
#include "store/object_store.h"

/// These functions check what every store checks in the same way before and after it moves bytes. `uri` names the
/// object in messages.

namespace millrace {

inline constexpr size_t kMaxKeyBytes = 1024;
inline constexpr int kMaxPage = 1000;

/// Returns InvalidArgument unless `key` has 1 to 1,024 bytes and no NUL. `store_uri` is the URI of the store: such a
/// key is not printed.
absl::Status CheckKey(std::string_view store_uri, std::string_view key);

/// Returns InvalidArgument if `store` can hold no object with that key. The writing calls of the store return the same.
absl::Status CheckCanHold(const ObjectStore& store, std::string_view key);

/// Returns InvalidArgument for conditions that contradict each other.
absl::Status CheckPut(std::string_view uri, const PutOptions& options);

/// Returns InvalidArgument without the ETag of the version to delete.
absl::Status CheckVersion(std::string_view uri, std::string_view etag);

/// Returns InvalidArgument if `into_size` is not the range's length, the range exceeds 64 bits or a checksum is outside
/// of it.
absl::Status CheckGet(std::string_view uri, const GetOptions& options, size_t into_size);

/// Returns InvalidArgument for a delimiter except "" and "/", a page of less than one key, or NUL in the prefix.
absl::Status CheckList(std::string_view uri, const ListOptions& options);

/// Returns OutOfRange if an object of `size` bytes ends before the range does.
absl::Status CheckRange(std::string_view uri, ByteRange range, uint64_t size);

/// Returns FailedPrecondition unless `if_match` is empty or the object's `etag`.
absl::Status CheckMatch(std::string_view uri, std::string_view if_match, std::string_view etag);

/// Returns DataLoss if the bytes read do not have the checksums of the options; fills in `options.damaged`.
absl::Status VerifyChecksums(std::string_view uri, const GetOptions& options, ByteSpan bytes);

/// Does the same if the damaged spans are known, in the order of the checksums.
absl::Status DamagedSpans(std::string_view uri, const GetOptions& options, std::vector<ByteRange> damaged);

/// Returns that DataLoss.
absl::Status DamagedSpan(std::string_view uri, ByteRange span);

}  // namespace millrace
