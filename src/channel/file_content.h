#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "store/object_store.h"

namespace millrace {

/// Holds the bytes of a file, and their version: the ETag that a folder's store gives it.
struct SeenContent {
  std::string bytes;
  std::string version;
};

/// Reads a regular file that others may be writing. It reads again while the file changes meanwhile or is empty, a
/// bounded number of times, and then returns the last result. NotFound if it is gone, or is no regular file;
/// FailedPrecondition if it has grown beyond `max_bytes`.
absl::StatusOr<SeenContent> ReadUnchanged(const std::string& path, uint64_t max_bytes);

/// Appends the bytes of the file, up to the size that it has at the beginning, also if it grows or is replaced
/// meanwhile. Returns the version. FailedPrecondition if there are fewer bytes than `min_bytes`.
absl::StatusOr<std::string> AppendFile(const std::string& path, uint64_t min_bytes, ObjectWriter& writer);

}  // namespace millrace
