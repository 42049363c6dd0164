#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "store/pieces.h"

namespace millrace {

/// Records which pieces of an object have been written, and where, for the checks of every PieceWriter. Thread-safe.
class PieceLedger {
 public:
  /// `uri` names the object in messages.
  PieceLedger(std::string uri, PieceLimits limits) : uri_(std::move(uri)), limits_(limits) {}

  const std::string& uri() const { return uri_; }

  /// Checks a piece before it is written. Returns InvalidArgument as PieceWriter::Write has it.
  absl::Status Admit(size_t index, ByteRange range);
  /// Records that the piece was written.
  void Enter(size_t index);

  /// Returns FailedPrecondition or InvalidArgument as PieceWriter::Commit has them.
  absl::Status CheckAll(uint64_t object_bytes) const;

 private:
  struct Piece {
    ByteRange range;
    bool written = false;
  };

  const std::string uri_;
  const PieceLimits limits_;
  mutable std::mutex mutex_;
  std::map<size_t, Piece> pieces_;
};

}  // namespace millrace
