#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "base/bytes.h"
#include "base/rng.h"
#include "base/status.h"
#include "cache/planned_read.h"

/// The layout of a file of the cache: docs/formats/cache.md. Pure.

namespace millrace {

/// Names the subject of a file of the cache: one version of an object, for those who may read it.
struct CacheIdentity {
  std::string store;  // its endpoint, and the root of its URIs
  std::string key;
  std::string etag;
  std::string tenant = {};  // those who share what was read; "": all users of the cache
  friend bool operator==(const CacheIdentity&, const CacheIdentity&) = default;
};

/// Describes a range of the object that the file has.
struct CachedSpan {
  ByteRange range;
  uint32_t crc32c = 0;  // of its bytes
  UseHints hints;
  uint32_t tag = 0;  // in a slab: of the object that lies there (SmallObject::tag)
  friend bool operator==(const CachedSpan&, const CachedSpan&) = default;
};

/// Holds the contents of the head of a file.
struct CacheHead {
  CacheIdentity identity;
  uint64_t object_bytes = 0;
};

namespace cache_format {

inline constexpr uint64_t kHeadBytes = 4096;
inline constexpr uint64_t kRecordBytes = 32;
inline constexpr uint32_t kVersion = 4;
/// A range is recorded by a u32.
inline constexpr uint64_t kMaxSpanBytes = uint64_t{1} << 30;

/// Returns "3f/" and 30 hex digits: the file lies there below the cache's folder.
std::string FileName(const CacheIdentity& identity);
/// Returns true if a name, without its folder, may be that of a file of the cache.
bool IsFileName(std::string_view folder, std::string_view name);

/// Returns kHeadBytes bytes; InvalidArgument if the identity does not fit.
absl::StatusOr<std::string> EncodeHead(const CacheIdentity& identity, uint64_t object_bytes);
/// Decodes a head. Returns DataLoss unless it is one; that of a slab has the size of a slab.
absl::StatusOr<CacheHead> DecodeHead(ByteSpan head);

/// Where the bytes of the object begin in the file; then comes the page of changes, and then the records.
inline constexpr uint64_t kDataAt = kHeadBytes;
uint64_t ChangesAt(uint64_t object_bytes);
inline constexpr uint64_t kChangesBytes = 4096;
uint64_t RecordsAt(uint64_t object_bytes);

/// The page of changes says how many there were, and of which records the last ones were. So a process that knows the
/// records up to some change learns the others without reading all.
inline constexpr uint64_t kChangesKept = (kChangesBytes - sizeof(uint64_t)) / sizeof(uint32_t);
/// Returns where in the page the number of the record of that change is; the count is at 0.
constexpr uint64_t ChangeAt(uint64_t change) {
  return sizeof(uint64_t) + change % kChangesKept * sizeof(uint32_t);
}

std::string EncodeRecord(const CachedSpan& span);
/// Where the hints are in a record, which its checksum does not cover: they change in place.
inline constexpr uint64_t kHintsAt = 16;
std::string EncodeHints(const UseHints& hints);
/// Returns nullopt if the record is free, damaged, or not about bytes of the object. In a slab, it has a tag, and its
/// range is that of a small object.
std::optional<CachedSpan> DecodeRecord(ByteSpan record, uint64_t object_bytes, bool in_slab = false);

/// A slab has the form of a file whose object has so many bytes, nearly all of which are a hole.
inline constexpr int kSlabBits = 36;
inline constexpr uint64_t kSlabBytes = uint64_t{1} << kSlabBits;
/// Objects that are shorter lie in slabs.
inline constexpr uint64_t kSmallBytes = uint64_t{1} << 20;
/// An object in a slab has no more bytes with its texts.
inline constexpr uint64_t kMaxSlabSpanBytes = kSmallBytes + kHeadBytes;
bool IsSlab(const CacheIdentity& identity);

}  // namespace cache_format

/// Says where a whole small object lies: in which of 2^slab_bits slabs, and by which tag, behind which texts.
struct SmallObject {
  /// Returns nullopt if the key is empty, or if the texts are too long.
  static std::optional<SmallObject> Of(const CacheIdentity& identity, int slab_bits);
  CacheIdentity slab;
  std::string slab_name;  // FileName of the slab
  uint32_t tag = 0;
  std::string head;  // its key and ETag, which the bytes of the object follow; the slab has store and tenant

  /// Returns the object of an entry of a slab, and its bytes; nullopt if it has no such texts.
  static std::optional<std::pair<CacheIdentity, ByteSpan>> Decode(ByteSpan entry, CacheIdentity slab);
};

/// Holds the records of a file, by their numbers and as ranges in order without overlaps. Not thread-safe.
class CachedSpans {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  CachedSpans() = default;
  /// Makes the records of a slab of so many bytes, which know its tags and what is free.
  explicit CachedSpans(uint64_t slab_bytes) : slab_bytes_(slab_bytes) { Clear(); }

  /// The record of that number is now this, or free. A record that overlaps others takes their place if it is the same
  /// range; else it does not count.
  void Set(uint32_t record, const std::optional<CachedSpan>& span);
  void Clear();

  bool Covers(ByteRange range) const;
  /// Returns the parts of the range that are not there, in order.
  std::vector<ByteRange> Missing(ByteRange range) const;
  struct Entry {
    uint32_t record = kNone;
    CachedSpan span;
  };
  /// Returns the records that have bytes of the range.
  std::vector<Entry> Touching(ByteRange range) const;
  /// Returns the record of just that range.
  std::optional<Entry> Find(ByteRange range) const;
  std::optional<Entry> Any(Rng& rng) const;
  void SetHints(uint32_t record, const UseHints& hints);
  /// Returns the records of a slab that have that tag.
  std::vector<Entry> Tagged(uint32_t tag) const;
  /// Returns the smallest free place of a slab for so many bytes: so what was freed is taken first, and the end last.
  std::optional<ByteRange> PlaceFor(uint64_t bytes) const;
  /// Returns what stays free in a slab around so many bytes where this range is, once it is gone; nullopt if they do
  /// not fit.
  std::optional<uint64_t> LeftBeside(uint64_t bytes, ByteRange range) const;

  /// Returns the blocks of the disk that only this range has bytes in: as first and one past the last; empty if the
  /// neighbors have all. A block has 4,096 bytes, counted from the begin of the object.
  std::pair<uint64_t, uint64_t> OwnBlocks(ByteRange range) const;

  /// Returns the number of a free record: the lowest, or else that of a new one.
  uint32_t FreeRecord() const { return free_.empty() ? records() : *free_.begin(); }
  size_t size() const { return by_offset_.size(); }
  /// Returns the number of records of the file, free ones too.
  uint32_t records() const { return static_cast<uint32_t>(offsets_.size()); }
  std::vector<CachedSpan> All() const;

 private:
  static constexpr uint64_t kFree = UINT64_MAX;
  using Map = absl::btree_map<uint64_t, Entry>;
  Map::const_iterator FirstTouching(ByteRange range) const;
  void Insert(uint32_t record, const CachedSpan& span);
  void Erase(uint64_t offset);
  // Between its neighbours there is nothing else: of a slab.
  ByteRange GapAround(ByteRange range) const;
  void SetGap(uint64_t begin, uint64_t end, bool there);

  Map by_offset_;
  std::vector<uint64_t> offsets_;  // of each record, or kFree
  absl::btree_set<uint32_t> free_;
  uint64_t slab_bytes_ = 0;                              // 0: of one object
  absl::btree_set<std::pair<uint32_t, uint64_t>> tags_;  // with the offset
  absl::btree_set<std::pair<uint64_t, uint64_t>> gaps_;  // length and offset
};

}  // namespace millrace
