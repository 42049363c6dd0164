#include "store/piece_ledger.h"

#include <fmt/format.h>

namespace millrace {

absl::Status PieceLedger::Admit(size_t index, ByteRange range) {
  if (range.length == 0)
    return absl::InvalidArgumentError(fmt::format("{}: piece {} is empty; an empty object is put", uri_, index + 1));
  if (index >= limits_.most_pieces || range.length > UINT64_MAX - range.offset) {
    return absl::InvalidArgumentError(fmt::format("{}: cannot have a piece {} of {} bytes at {}; the store takes {}",
                                                  uri_, index + 1, range.length, range.offset, limits_.most_pieces));
  }
  std::lock_guard lock(mutex_);
  const Piece& piece = pieces_.try_emplace(index, Piece{range}).first->second;
  if (piece.range.offset == range.offset && piece.range.length == range.length) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{}: piece {} has {} bytes at {}, not {} at {}", uri_, index + 1,
                                                piece.range.length, piece.range.offset, range.length, range.offset));
}

void PieceLedger::Enter(size_t index) {
  std::lock_guard lock(mutex_);
  pieces_.at(index).written = true;
}

absl::Status PieceLedger::CheckAll(uint64_t object_bytes) const {
  std::lock_guard lock(mutex_);
  uint64_t end = 0;
  size_t count = 0;
  for (const auto& [index, piece] : pieces_) {
    if (index != count || !piece.written || piece.range.offset != end) break;
    end += piece.range.length;
    ++count;
    if (count < pieces_.size() && piece.range.length < limits_.least_bytes) {
      return absl::InvalidArgumentError(fmt::format("{}: piece {} has {} bytes; all but the last need {}", uri_, count,
                                                    piece.range.length, limits_.least_bytes));
    }
  }
  if (count > 0 && count == pieces_.size() && end == object_bytes) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{}: cannot be committed: the first {} pieces are {} of its {} bytes, and the next was not written",
                  uri_, count, end, object_bytes));
}

}  // namespace millrace
