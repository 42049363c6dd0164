#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "mount/range_set.h"
#include "store/pieces.h"

namespace millrace {

/// Tracks where the bytes of a file are that programs write. A file rests on a version of the store, the base, or on
/// nothing. Later bytes lie in a staging file on the local disk at their own offset. If there was no room, they are
/// only in the parts of an open upload. Pure: it does no I/O and moves no bytes. Not thread-safe.
class WrittenContent {
 public:
  enum class Where {
    kBase,   // in the base, at the same offset
    kLocal,  // in the staging file, at the same offset
    kZeros,  // never written
    kLost,   // only in an upload that is not committed, which nobody can read
  };
  struct Part {
    Where where = Where::kZeros;
    ByteRange range;
    friend bool operator==(const Part&, const Part&) = default;
  };
  /// Describes a part of the object that a commit makes.
  struct Piece {
    ByteRange range;
    bool copied = false;  // the store copies it from the base, else it is sent
    friend bool operator==(const Piece&, const Piece&) = default;
  };

  /// Makes a new file if `base_bytes` is 0.
  explicit WrittenContent(uint64_t base_bytes = 0) : size_(base_bytes), base_end_(base_bytes) {}

  uint64_t size() const { return size_; }
  /// Returns true if the file differs from the base, or might.
  bool changed() const { return changed_; }
  /// Returns true if bytes of the base are still part of the file.
  bool uses_base() const { return base_end_ > 0 && changes_.BytesIn({0, base_end_}) < base_end_; }
  bool has_lost() const { return !lost_.empty(); }
  uint64_t local_bytes() const { return local_.bytes(); }
  /// Returns how many bytes of the range are not in the staging file yet.
  uint64_t BytesToStage(ByteRange range) const { return range.length - local_.BytesIn(range); }
  std::vector<ByteRange> local_ranges() const { return local_.Within({0, size_}); }

  /// These bytes were written: into the staging file if `kept`, else only into the upload. A gap before them is zeros.
  void Wrote(ByteRange range, bool kept);
  /// The program changes the size.
  void Truncate(uint64_t size);
  /// The bytes, which are those of the file, lie in the staging file, too.
  void Fetched(ByteRange range) { local_.Add(range); }
  /// The bytes were dropped from the staging file, and are in the upload.
  void Lose(ByteRange range);
  /// The file as it is has become a version of the store, which is the base from now on.
  void Committed();
  /// There is something to commit, even if no byte differs: a new file.
  void MarkChanged() { changed_ = true; }

  /// Returns where the bytes of the range are, in ascending order, without a gap. Bytes beyond the size are left out.
  std::vector<Part> Parts(ByteRange range) const;

  /// Returns the pieces of which the file is put together, in ascending order and without a gap. A piece that is sent
  /// has about kPieceBytes, or more if the store wants it. One that is copied has at least `least_copied`, and at most
  /// `most_copied` unless the file would have too many. With `least_copied` 0 nothing is copied. Empty if the file is.
  std::vector<Piece> CommitPieces(const PieceLimits& limits, uint64_t least_copied, uint64_t most_copied) const;

 private:
  uint64_t size_;
  uint64_t base_end_;  // bytes of the base from there on are not part of the file
  bool changed_ = false;
  RangeSet local_;
  RangeSet changes_;  // since the base
  RangeSet lost_;
};

}  // namespace millrace
