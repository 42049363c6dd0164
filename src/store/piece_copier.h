#pragma once

#include "store/object_store.h"

namespace millrace {

/// Is a PieceWriter of a store that can also take pieces from an object that it holds, without their bytes coming here.
/// Writers that can are found by a dynamic_cast.
class PieceCopier : public PieceWriter {
 public:
  /// Writes piece `index`, which begins at `offset`, with `range` of `source`. That is an object of the same store, as
  /// Head or List has reported it. Returns FailedPrecondition if it has another ETag by now, if the store knows that
  /// condition; Unimplemented if the server turns out not to copy. The copies come before the first Write. For an
  /// object with copies the store makes no checksum of the whole.
  virtual void Copy(size_t index, uint64_t offset, const ObjectInfo& source, ByteRange range, DoneCallback done) = 0;
};

}  // namespace millrace
