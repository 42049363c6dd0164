#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "s3/object.h"

namespace millrace {

/// Checks the CRC32C of spans as their bytes come, while they are still in the caches of the CPU. At the end, when
/// other answers have come in between, they would be read from memory once more, at ten times the cost. Not
/// thread-safe.
class SpanVerifier {
 public:
  /// All `spans` lie within `range`, the bytes of which are in `buffer` or will be. The caller's, who keeps them.
  SpanVerifier(std::span<const SpanChecksum> spans, ByteRange range, ByteSpan buffer);

  /// Bytes come from `offset` on, in order.
  void Begin(uint64_t offset);
  /// They have come up to `end`.
  void Came(uint64_t end);

  /// Call this when all bytes are there. Returns the spans that do not match, in the order given. Only those are
  /// checked that did not match when they came, or that did not come as a whole in one order of bytes.
  std::vector<ByteRange> Damaged();

  /// All bytes will come again.
  void Reset();

 private:
  ByteSpan BytesOf(ByteRange part) const { return buffer_.subspan(part.offset - range_.offset, part.length); }

  const std::span<const SpanChecksum> spans_;
  const ByteRange range_;
  const ByteSpan buffer_;
  std::vector<bool> verified_;  // one for each span
  uint64_t begin_ = 0;
  size_t next_ = 0;    // the first span that has not come since Begin
  uint64_t done_ = 0;  // bytes of it that have come
  uint32_t crc_ = 0;   // and their checksum
};

}  // namespace millrace
