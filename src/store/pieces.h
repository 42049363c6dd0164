#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace millrace {

/// A large object is read and written in pieces of this size, if nothing else says how much. These decide for
/// themselves: `PieceBytesOf` (checkpoint/shard_write.cc), `WrittenContent::CommitPieces` (mount) and
/// `StreamWriter::Open`.
inline constexpr uint64_t kPieceBytes = 8 << 20;

/// States what a store requires of the pieces that an object is written in.
struct PieceLimits {
  uint64_t least_bytes = 1;  // of all but the last
  uint64_t most_pieces = UINT64_MAX;
  uint64_t most_bytes = uint64_t{5} << 30;  // of one piece: what S3 takes, and more than memory should hold of a file
};

/// Divides an object into pieces, which are read, written and checked apart from each other. Plain data.
class Pieces {
 public:
  /// Makes pieces of about `about` bytes: at most half as much again, but more if `limits` say so. If the object was
  /// uploaded in parts of `part_bytes` (0: not known), the pieces keep to the parts. A large part is divided, as evenly
  /// as it can be. Small parts (less than half of `about`) are taken together.
  Pieces(uint64_t object_bytes, uint64_t part_bytes, uint64_t about = kPieceBytes, PieceLimits limits = {});

  uint64_t object_bytes() const { return object_bytes_; }
  size_t count() const { return static_cast<size_t>(IndexOf(object_bytes_) + (EndsWithin() ? 1 : 0)); }
  ByteRange At(size_t index) const;
  /// Returns the piece that holds the byte at `offset`.
  size_t IndexOf(uint64_t offset) const;
  /// Returns the length of the longest piece.
  uint64_t largest() const { return length_ < object_bytes_ ? length_ : object_bytes_; }
  /// Returns true if a piece is just one of the parts.
  bool IsPart(size_t index) const;

 private:
  void Divide(uint64_t about, uint64_t least_bytes);
  uint64_t per_group() const { return (group_ - 1) / length_ + 1; }
  bool EndsWithin() const { return object_bytes_ % group_ % length_ != 0; }

  uint64_t object_bytes_;
  uint64_t part_bytes_;
  // Groups of pieces begin at multiples of group_. Within one all pieces have length_ bytes, the last of it maybe less.
  uint64_t group_ = 1;
  uint64_t length_ = 1;
};

/// Returns how many pieces are in flight at a time for one object: 64 MiB of them, but two to eight.
size_t PiecesInFlight(const Pieces& pieces);

}  // namespace millrace
