#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"

/// Reads the marker segments before the pixels of a JPEG, as they are stored. Pure.

namespace millrace {

namespace jpeg_marker {
inline constexpr uint8_t kSof0 = 0xC0;  // baseline
inline constexpr uint8_t kSof1 = 0xC1;  // extended, with Huffman codes
inline constexpr uint8_t kDht = 0xC4;
inline constexpr uint8_t kRst0 = 0xD0;
inline constexpr uint8_t kRst7 = 0xD7;
inline constexpr uint8_t kSoi = 0xD8;
inline constexpr uint8_t kEoi = 0xD9;
inline constexpr uint8_t kSos = 0xDA;
inline constexpr uint8_t kDqt = 0xDB;
inline constexpr uint8_t kDri = 0xDD;
inline constexpr uint8_t kApp0 = 0xE0;   // JFIF
inline constexpr uint8_t kApp1 = 0xE1;   // EXIF, XMP
inline constexpr uint8_t kApp2 = 0xE2;   // a colour profile
inline constexpr uint8_t kApp14 = 0xEE;  // Adobe's
inline constexpr uint8_t kApp15 = 0xEF;
inline constexpr uint8_t kComment = 0xFE;
}  // namespace jpeg_marker

struct JpegSegment {
  uint8_t marker = 0;
  size_t begin = 0;  // of its 0xFF in the file
  size_t end = 0;    // one past its payload
  ByteSpan payload;  // after the length
};

/// Walks over the segments up to the first SOS, which is the last one that it returns. The segments that it returns are
/// in `encoded`.
class JpegSegments {
 public:
  explicit JpegSegments(ByteSpan encoded) : encoded_(encoded) {}

  /// Returns nullopt at the end, and at anything else than a segment: not all that a decoder takes is understood.
  std::optional<JpegSegment> Next();

 private:
  uint8_t At(size_t i) const { return static_cast<uint8_t>(encoded_[i]); }

  ByteSpan encoded_;
  size_t at_ = 0;
  bool done_ = false;
};

inline unsigned LoadBe16(const std::byte* from) {
  return static_cast<unsigned>(from[0]) << 8 | static_cast<unsigned>(from[1]);
}

}  // namespace millrace
