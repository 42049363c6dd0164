#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "s3/object.h"
#include "store/object_store.h"

/// What every store checks in the same way before and after it moves bytes. `uri` names the object in messages.

namespace millrace {

inline constexpr size_t kMaxKeyBytes = 1024;
inline constexpr int kMaxPage = 1000;

/// InvalidArgument unless `key` has 1 to 1,024 bytes and no NUL. `store_uri` is the URI of the store: such a key is not
/// printed.
absl::Status CheckKey(std::string_view store_uri, std::string_view key);

/// InvalidArgument if `store` can hold no object of that key, as its writing calls will say, too.
absl::Status CheckCanHold(const ObjectStore& store, std::string_view key);

/// InvalidArgument for conditions that contradict each other.
absl::Status CheckPut(std::string_view uri, const PutOptions& options);

/// InvalidArgument without the ETag of the version to delete.
absl::Status CheckVersion(std::string_view uri, std::string_view etag);

/// InvalidArgument when `into_size` is not the range's length, the range exceeds 64 bits or a checksum lies outside of
/// it.
absl::Status CheckGet(std::string_view uri, const GetOptions& options, size_t into_size);

/// InvalidArgument for a delimiter other than "" and "/", a page of less than one key, or NUL in the prefix.
absl::Status CheckList(std::string_view uri, const ListOptions& options);

/// OutOfRange when an object of `size` bytes ends before the range does.
absl::Status CheckRange(std::string_view uri, ByteRange range, uint64_t size);

/// FailedPrecondition unless `if_match` is empty or the object's `etag`.
absl::Status CheckMatch(std::string_view uri, std::string_view if_match, std::string_view etag);

/// DataLoss when the bytes read do not have the checksums of the options; fills in `options.damaged`.
absl::Status VerifyChecksums(std::string_view uri, const GetOptions& options, ByteSpan bytes);

/// The same where the damaged spans are known, in the order of the checksums.
absl::Status DamagedSpans(std::string_view uri, const GetOptions& options, std::vector<ByteRange> damaged);

/// That DataLoss.
absl::Status DamagedSpan(std::string_view uri, ByteRange span);

}  // namespace millrace
