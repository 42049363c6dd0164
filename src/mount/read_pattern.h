#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace millrace {

/// Says what to do for a read of a file, besides reading it.
struct ReadAdvice {
  bool in_blocks = false;         // else only what was read is asked for
  uint64_t until = 0;             // if in blocks: all of them that begin before this offset are fetched
  uint64_t piece_bytes = 0;       // likewise: in requests of so much, a power of two, which end at its multiples
  std::vector<ByteRange> behind;  // what was fetched ahead, and is not needed any more
  // The program has come to the end of the file, and has read this range on its way. The bytes behind it are
  // no part of it. Empty if the program has not come to the end.
  ByteRange finished;
};

/// Tells reads that follow one another from reads here and there, for one open file. Pure.
///
/// Several threads may each read forward from a place of its own: up to kMaxStreams such streams are distinguished. A
/// stream is read ahead once kStreak bytes were read in it one after the other. Their order may differ a little, as the
/// kernel sends them. It is read ahead twice as far as it has lasted, up to `max_ahead_bytes`. A read that follows no
/// stream is a read here and there. Only its bytes are requested, so random reads cost just the requests and the bytes
/// that they need. A read at the beginning of a file counts as the first of a stream, since most programs read files to
/// their end.
class ReadPattern {
 public:
  static constexpr size_t kMaxStreams = 8;
  static constexpr uint64_t kBlockBytes = uint64_t{1} << 20;
  static constexpr uint64_t kStreak = uint64_t{256} << 10;
  static constexpr uint64_t kMaxPieceBytes = uint64_t{8} << 20;

  ReadPattern(uint64_t file_bytes, uint64_t max_ahead_bytes);

  /// The program reads this range, which lies within the file.
  ReadAdvice OnRead(uint64_t offset, uint64_t end);

 private:
  struct Stream {
    uint64_t farthest = 0;  // the end of its reads so far
    uint64_t streak = 0;    // bytes that were read one after the other up to there
    uint64_t read = 0;      // bytes of all its reads, in whatever order
    uint64_t began = 0;     // the least offset of them
    uint64_t held_from = 0;
    uint64_t held_until = 0;  // what was fetched and is not behind: empty if nothing was
    uint64_t used = 0;        // the number of the read
  };

  Stream* Near(uint64_t offset);
  Stream& Begin(uint64_t end, ReadAdvice& advice);
  bool IsLive(const Stream& stream) const;
  void DropBehind(Stream& stream, uint64_t offset, ReadAdvice& advice) const;

  const uint64_t file_bytes_;
  const uint64_t max_ahead_;
  uint64_t reads_ = 0;
  std::vector<Stream> streams_;
};

}  // namespace millrace
