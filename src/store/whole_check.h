#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "s3/object.h"
#include "store/pieces.h"

namespace millrace {

/// Checks the bytes of an object that is read in pieces, in any order, against the checksum that the store keeps for
/// it, if it keeps one beside the ETag. (One that is read in one piece: GetOptions::whole.) Not thread-safe.
class WholeCheck {
 public:
  /// `object` is one that LearnObject has completed.
  WholeCheck(std::string uri, const ObjectInfo& object, Pieces pieces);

  /// Returns false if the store keeps nothing to check by, so that nothing will be found.
  bool checks() const { return expected_.has_value(); }

  /// Returns true if the pieces, all of which have come, are those of the store's checksum. After Settle has succeeded,
  /// pieces that do not match came the same twice.
  bool Matches() const;

  /// Adds a piece that has come; if it comes again, the later one counts. Returns true if it is new, or differs from
  /// the earlier one.
  bool Add(size_t piece, ByteSpan bytes);

  /// Returns DataLoss if the pieces, all of which have come, are not those of the store's checksum.
  absl::Status Finish() const;

  /// Does what Finish does, for a caller that can take back damaged bytes. `again` reads and adds every piece a second
  /// time, once.
  ///
  /// Above s3 only this, and the copy of an artifact, read damaged bytes again. A request cannot know it there: the
  /// checksum is of all pieces together, and which of them is damaged shows only in that it comes differently the
  /// second time.
  absl::Status Settle(absl::FunctionRef<absl::Status()> again);

  /// These two are the halves of Settle: whether the pieces must all be read and added a second time, and Finish after
  /// that.
  bool Disagrees();
  absl::Status FinishAgain() const;

 private:
  uint64_t CrcOfPieces(size_t first, size_t end) const;
  absl::Status Damaged(std::string_view how_often) const;

  const std::string uri_;
  const Pieces pieces_;
  uint64_t part_bytes_;
  std::optional<ObjectChecksum> expected_;
  std::vector<std::optional<uint64_t>> crcs_;  // of the pieces up to the last that has come: memory follows bytes
  bool changed_ = false;                       // a piece came differently the second time
};

}  // namespace millrace
