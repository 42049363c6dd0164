#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "store/object_store.h"

namespace millrace {

/// What a file had in it, and which version that is (as a folder's store tells it: its ETag).
struct SeenContent {
  std::string bytes;
  std::string version;
};

/// Reads a regular file that others may be writing: again while it changes meanwhile, or is empty, a bounded number of
/// times; then it is what came last. NotFound if it is gone, or is no regular file; FailedPrecondition if it has grown
/// beyond `max_bytes`.
absl::StatusOr<SeenContent> ReadUnchanged(const std::string& path, uint64_t max_bytes);

/// Appends what the file has now, up to the size that it has at the beginning, also if it grows or is replaced
/// meanwhile. Returns the version.
absl::StatusOr<std::string> AppendFile(const std::string& path, ObjectWriter& writer);

}  // namespace millrace
