#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "cache/cache_format.h"
#include "s3/object.h"

namespace millrace {

/// One file of the cache: what is kept of one version of an object. Several processes may read and write it at once;
/// whoever has it open holds a shared lock, so that nobody removes it to make room. Thread-safe; blocking.
class CacheFile {
 public:
  /// NotFound if there is none; DataLoss if it is no sound file of that identity; else what the system says.
  static absl::StatusOr<std::unique_ptr<CacheFile>> Open(const std::string& path, const CacheIdentity& identity);

  /// Makes it if there is none, and opens it. NotFound if another process is about to make or to remove it.
  static absl::StatusOr<std::unique_ptr<CacheFile>> OpenOrMake(const std::string& path, const CacheIdentity& identity,
                                                               uint64_t object_bytes);

  uint64_t object_bytes() const { return object_bytes_; }
  size_t spans() const;

  /// Reads a range into `into`, of its length. NotFound if a part of it is not there. The bytes are checked against
  /// `checksums`, of spans within the range; without any, the range must be one of those that were written, or
  /// several, which are checked as they were written. What is damaged is forgotten: DataLoss.
  absl::Status Read(ByteRange range, std::span<const SpanChecksum> checksums, MutableByteSpan into);

  /// The parts of a range that are not there.
  std::vector<ByteRange> Missing(ByteRange range) const;

  /// Bytes of the disk that Write takes at most for a range of that many.
  static uint64_t DiskBytes(uint64_t length);
  /// Likewise a file without ranges.
  static constexpr uint64_t kEmptyDiskBytes = 2 * cache_format::kHeadBytes;

  /// Adds a range. First come the bytes, then the record that tells of them: a process that dies in between leaves
  /// nothing that counts.
  absl::Status Write(uint64_t offset, ByteSpan bytes);

 private:
  CacheFile(UniqueFd fd, std::string path, uint64_t object_bytes)
      : fd_(std::move(fd)), path_(std::move(path)), object_bytes_(object_bytes) {}
  absl::Status LearnRecords();  // with mutex_ held
  absl::Status AppendRecord(const CachedSpan& span);
  absl::Status Check(ByteRange range, std::span<const SpanChecksum> checksums, std::vector<CachedSpan> touching,
                     MutableByteSpan into);

  const UniqueFd fd_;
  const std::string path_;
  const uint64_t object_bytes_;
  mutable std::mutex mutex_;
  CachedSpans spans_;
  uint64_t records_ = 0;  // that were read, damaged ones too
};

}  // namespace millrace
