#pragma once

#include <cstdint>
#include <utility>

#include "store/object_store.h"

namespace millrace {

/// A PieceWriter of a store that sends a CRC32C with each piece: one that the caller has made already is not made again
/// of the same bytes, and what the store keeps is what the caller's checksum says.
class CheckedPieceWriter : public PieceWriter {
 public:
  /// As Write. DataLoss if the store finds that `crc32c` is not that of what has arrived.
  virtual void WriteChecked(size_t index, uint64_t offset, ByteSpan bytes, uint32_t crc32c, DoneCallback done) = 0;
};

/// Writes a piece whose CRC32C is known, by any writer: those that need no checksum take the bytes alone.
inline void WriteChecked(PieceWriter& writer, size_t index, uint64_t offset, ByteSpan bytes, uint32_t crc32c,
                         DoneCallback done) {
  if (auto* const checked = dynamic_cast<CheckedPieceWriter*>(&writer); checked != nullptr) {
    checked->WriteChecked(index, offset, bytes, crc32c, std::move(done));
  } else {
    writer.Write(index, offset, bytes, std::move(done));
  }
}

}  // namespace millrace
