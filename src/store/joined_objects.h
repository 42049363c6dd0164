#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "s3/object.h"

namespace millrace {

/// Joined objects are several objects, read as if they were one: their bytes follow each other. Such an object has a
/// key like others, but no object of a store can have that key, since it contains NULs. The key consists of the first
/// key, its size, and the name and size of each further one ("images/7.jpg", "115000", "7.json/212", with a NUL between
/// them). The name is a path from the folder of the first one, which may begin with "../" ("../masks/7.png/1200"). The
/// ETag consists of their ETags, with NULs between them, so that a read is pinned to one version of each. JoinedStore
/// reads them.

inline constexpr size_t kMaxJoinedObjects = 32;

/// Returns true if the key is that of joined objects.
inline bool IsJoinedKey(std::string_view key) {
  return key.find('\0') != std::string_view::npos;
}

/// Joins two to kMaxJoinedObjects objects, in this order. The result has the key, the size (of all) and the ETag ("" if
/// none of them has one).
ObjectInfo JoinObjects(const std::vector<ObjectInfo>& objects);

/// Returns the objects of such a key, with the ETags of `etag` ("": without ETags). A key that is not of joined objects
/// comes back as it is, with size 0. Returns InvalidArgument for what JoinObjects does not make: keys come from files.
absl::StatusOr<std::vector<ObjectInfo>> SplitJoined(std::string_view key, std::string_view etag);

/// Returns a name for people, such as "images/7.{jpg,json}". Any other key comes back as it is.
std::string JoinedName(std::string_view key);

}  // namespace millrace
