#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "s3/object.h"

namespace millrace {

/// Several objects, read as if they were one: their bytes follow each other. Such an object has a key like others,
/// which no object of a store can have, since it contains NULs: the first key, its size, and the name and size of each
/// further one ("images/7.jpg", "115000", "7.json/212", with a NUL between them). The name is a path from the folder of
/// the first one, which may begin with "../" ("../masks/7.png/1200"). Its ETag is theirs, with NULs between them, so
/// that a read is pinned to one version of each. JoinedStore reads them.

inline constexpr size_t kMaxJoinedObjects = 32;

/// Whether the key is that of joined objects.
inline bool IsJoinedKey(std::string_view key) {
  return key.find('\0') != std::string_view::npos;
}

/// Of two to kMaxJoinedObjects objects, in this order: key, size (of all) and ETag ("" if none has one).
ObjectInfo JoinObjects(const std::vector<ObjectInfo>& objects);

/// The objects of such a key, with the ETags of `etag` ("": none). An object that is none of joined ones comes back as
/// it is, with size 0. InvalidArgument for what JoinObjects does not make: keys come from files.
absl::StatusOr<std::vector<ObjectInfo>> SplitJoined(std::string_view key, std::string_view etag);

/// "images/7.{jpg,json}": for people. Any other key comes back as it is.
std::string JoinedName(std::string_view key);

}  // namespace millrace
