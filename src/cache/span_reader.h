#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/cache_format.h"

/// These functions read the files of the cache (cache_file.h), and write to them.

namespace millrace {

/// Reads bytes of a file. DataLoss if it ends before.
absl::Status ReadAt(int fd, uint64_t offset, MutableByteSpan into, const std::string& path);

/// OutOfRange if the file may not become so long: by the limit of this process (ulimit -f), or of its file system.
absl::Status WriteAt(int fd, uint64_t offset, ByteSpan bytes, const std::string& path);

/// So long may a file be that this process writes to (ulimit -f).
uint64_t FileSizeLimit();

/// Reads a range of an object into `into`, of its length. The bytes of the object begin at `data_at` in a file. Checks
/// `spans`: ranges that were written, in order, each of which has bytes of it. They are read straight into their place.
/// If a span reaches beyond the range, the rest is read as well, through a buffer of 128 KiB.
///
/// DataLoss if a part is not what was written or the file ends before it; all of these parts are appended to `damaged`.
absl::Status ReadSpans(int fd, uint64_t data_at, const std::string& path, ByteRange range,
                       std::span<const CachedSpan> spans, MutableByteSpan into, std::vector<ByteRange>* damaged);

}  // namespace millrace
