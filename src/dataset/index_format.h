#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/crypto.h"
#include "dataset/index.h"

/// Defines the layout of index files, shared by writer and reader. docs/formats/index.md describes every byte.

namespace millrace::index_format {

inline constexpr std::string_view kHeadMagic{"MRINDEX\0", 8};
inline constexpr std::string_view kFootMagic{"MRINDEX\x1a", 8};
inline constexpr uint32_t kVersion = 5;
/// This is the older version that is also read, to make an index of this version without reading the data. Its samples
/// have two flags, and all have a CRC.
inline constexpr uint32_t kOlderVersion = 4;
inline constexpr size_t kHeadBytes = 16;

/// This is the number of samples, or objects, of a block. It is small, because a lookup decodes half a block on
/// average.
inline constexpr uint64_t kBlockItems = 32;
inline constexpr size_t kBlockHeaderBytes = 8;
inline constexpr size_t kTableEntryBytes = 8;

/// Offsets within the foot, whose last byte is the file's. The foot of the older version begins with kFootSamples.
enum FootAt : size_t {
  kFootWithoutCrc = 0,
  kFootSamples = 8,
  kFootObjects = 16,
  kFootSpanBytes = 24,
  kFootMaxSpan = 32,
  kFootFingerprint = 40,
  kFootLabelRuns = 48,
  kFootObjectTable = 56,
  kFootSampleTable = 64,
  kFootNames = 72,
  kFootNamesBytes = 80,
  kFootNamesCrc = 88,
  kFootKind = 92,
  kFootCrc = 96,
  kFootMagicAt = 100,
  kFootBytes = 108,
};

/// A flag in the number at kFootKind: the index is that of a manifest in CSV whose quotes are text.
inline constexpr uint32_t kQuotesAreText = 1 << 8;
/// Another flag: raw objects have files of their classes that were not read.
inline constexpr uint32_t kClassesUnread = 1 << 9;

enum class BlockKind : uint64_t { kSamples = 0, kObjects = 1 };

// This is the encoding of an ETag: a tag, then its text. Hexadecimal MD5s, the usual case, take half the bytes. The tag
// is shifted by one bit, which says that the object is incomplete.
inline constexpr uint64_t kEtagHex = 0;       // 16 bytes
inline constexpr uint64_t kEtagHexParts = 1;  // 16 bytes, varint: "<hex>-<number>"
inline constexpr uint64_t kEtagText = 2;      // tag - 2 bytes of text

// Flags in the low bits of a sample's head.
inline constexpr uint64_t kSampleIrregular = 1;
inline constexpr uint64_t kSampleNewObject = 2;
inline constexpr uint64_t kSampleWithoutCrc = 4;  // not of the older version
inline constexpr int kSampleFlagBits = 3;
inline constexpr int kOlderSampleFlagBits = 2;

// Represents the kind of a field of a layout, in the low bits of its number.
enum class FieldKind : uint64_t {
  kStored = 0,  // bytes of the object
  kClass = 1,   // the class of a raw object, which is its number among the classes
  kValue = 2,   // text that the index holds
};
inline constexpr int kFieldKindBits = 2;

/// The name of a field that is hidden in the index of a data set with a file of labels. If a stored field has it, a
/// column of the file takes the field's place. If a value has it (an empty text), the file says what it should of the
/// sample.
inline constexpr std::string_view kHiddenField{"\0", 1};

/// Bounds that writer and reader enforce.
inline constexpr uint64_t kMaxFieldNames = 1 << 16;
inline constexpr uint64_t kMaxLayouts = 1 << 16;
inline constexpr uint64_t kMaxEncodings = 1 << 12;
inline constexpr uint64_t kMaxClasses = 1 << 20;
inline constexpr uint64_t kMaxNumericLabels = 1 << 16;  // more are not classes of shards any more
inline constexpr uint64_t kMaxValueBytes = 1 << 17;     // of all values of a sample: a block stays below 5 MiB
inline constexpr uint64_t kMaxEtagBytes = 4096;         // of joined objects
inline constexpr uint64_t kMaxNamesBytes = uint64_t{1} << 30;
inline constexpr uint64_t kMaxOffset = uint64_t{1} << 62;

/// Returns the unit of offsets. Data of tar members start at whole tar blocks, so their offsets are counted in these.
constexpr uint64_t OffsetUnit(DataKind kind) {
  return kind == DataKind::kTar ? 512 : 1;
}

/// Returns the place where the first field of a sample would start if no header lay between it and the sample before
/// it.
constexpr uint64_t AlignToUnit(uint64_t offset, uint64_t unit) {
  return (offset + unit - 1) / unit * unit;
}

/// Returns the checksum of a block. It covers the block's kind and number, so that a damaged block table is noticed as
/// well.
inline uint32_t BlockCrc(BlockKind kind, uint64_t number, ByteSpan payload) {
  const uint64_t seed = number << 1 | static_cast<uint64_t>(kind);
  return Crc32c(payload, Crc32c({reinterpret_cast<const std::byte*>(&seed), sizeof seed}));
}

}  // namespace millrace::index_format
