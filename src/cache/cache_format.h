#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

/// The layout of a file of the cache: docs/formats/cache.md. Pure.

namespace millrace {

/// What a file of the cache is about: one version of an object.
struct CacheIdentity {
  std::string store;  // its endpoint, and the root of its URIs
  std::string key;
  std::string etag;
};

/// A range of the object that the file has.
struct CachedSpan {
  ByteRange range;
  uint32_t crc32c = 0;  // of its bytes
  friend bool operator==(const CachedSpan&, const CachedSpan&) = default;
};

namespace cache_format {

inline constexpr uint64_t kHeadBytes = 4096;
inline constexpr uint64_t kRecordBytes = 32;
inline constexpr uint32_t kVersion = 1;

/// "3f/" and 30 hex digits: where the file lies below the cache's folder.
std::string FileName(const CacheIdentity& identity);
/// Whether a name, without its folder, may be that of a file of the cache.
bool IsFileName(std::string_view folder, std::string_view name);

/// kHeadBytes; InvalidArgument if the identity does not fit.
absl::StatusOr<std::string> EncodeHead(const CacheIdentity& identity, uint64_t object_bytes);
/// The size of the object. DataLoss unless it is a head for that identity.
absl::StatusOr<uint64_t> DecodeHead(ByteSpan head, const CacheIdentity& identity);

/// Where the bytes of the object, and the records, begin in the file.
inline constexpr uint64_t kDataAt = kHeadBytes;
uint64_t RecordsAt(uint64_t object_bytes);

std::string EncodeRecord(const CachedSpan& span);
/// nullopt if the record is damaged, or not about bytes of the object.
std::optional<CachedSpan> DecodeRecord(ByteSpan record, uint64_t object_bytes);

}  // namespace cache_format

/// The ranges that a file has, in order and without overlaps. Not thread-safe.
class CachedSpans {
 public:
  /// False, and nothing is changed, if a part of it is there already but under another range. The same range again
  /// takes the place of the old one.
  bool Add(const CachedSpan& span);
  bool Covers(ByteRange range) const;
  /// The parts of the range that are not there, in order.
  std::vector<ByteRange> Missing(ByteRange range) const;
  /// Those that have bytes of the range.
  std::vector<CachedSpan> Touching(ByteRange range) const;
  void RemoveTouching(ByteRange range);
  size_t size() const { return spans_.size(); }

 private:
  size_t FirstTouching(ByteRange range) const;
  std::vector<CachedSpan> spans_;
};

}  // namespace millrace
