#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"

namespace millrace {

/// Larger records or samples are refused, since they are held as a whole if they come in several chunks.
inline constexpr uint64_t kMaxRecordBytes = uint64_t{1} << 29;

/// Cuts a stream that comes in chunks into pieces whose sizes the caller learns on the way. A piece that is in one
/// chunk is not copied. Not thread-safe.
class ByteGatherer {
 public:
  /// Takes the next chunk, in order; it must not change until Take has returned nothing.
  void Begin(ByteSpan chunk) { chunk_ = chunk; }

  /// Returns the next `size` bytes, valid until the next call; nothing if they have not all come: call it again after
  /// the next chunk. Memory is at most twice the bytes of the piece that have come.
  std::optional<ByteSpan> Take(uint64_t size);

  /// Returns the offset in the stream at which the next piece begins.
  uint64_t position() const { return position_; }

  /// Returns the bytes that have come and are in no piece yet; meaningful after Take has returned nothing.
  uint64_t held() const { return held_.size(); }

  /// Returns the memory of the pieces that come in several chunks.
  uint64_t memory_bytes() const { return held_.capacity() + taken_.capacity(); }

 private:
  ByteSpan chunk_;     // what has not been looked at
  std::string held_;   // the start of a piece, from earlier chunks
  std::string taken_;  // the latest piece that came in several chunks
  uint64_t position_ = 0;
};

}  // namespace millrace
