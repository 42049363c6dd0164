#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "pipeline/arena.h"
#include "plan/row_spec.h"
#include "store/object_store.h"

namespace millrace {

/// Identifies the unit of a decode task: a row of a batch. Steps are counted over the life of a loader.
struct UnitId {
  uint64_t step = 0;
  uint32_t unit = 0;
  friend auto operator<=>(const UnitId&, const UnitId&) = default;
};

/// Represents a piece of a row, and the place of its tokens among those of the row.
struct PlacedPiece {
  Segment piece;
  uint32_t start = 0;  // tokens
  bool asked = false;  // for its bytes, by the Fetcher
};

/// Represents the stored bytes of an item: those of a sample's span, or of the tokens of a row, one piece behind the
/// other. Other threads than that of the Fetcher's owner may read the bytes, pieces and result of a ready item.
class FetchedItem {
 public:
  /// Makes an item with memory of an arena (empty: there are no bytes). `bookkeeping` counts the memory that items take
  /// beside the arena; it is greater by Bookkeeping(pieces) while the item lives.
  FetchedItem(ArenaBlock memory, std::vector<PlacedPiece> pieces, uint64_t* bookkeeping);
  /// Makes an item with memory of its own.
  FetchedItem(Buffer reserve, std::vector<PlacedPiece> pieces);
  ~FetchedItem();
  FetchedItem(const FetchedItem&) = delete;
  FetchedItem& operator=(const FetchedItem&) = delete;

  /// Returns the bytes beside those of the arena: of the item and the table that it is in. They are charged so that
  /// millions of tiny items stay within the budget, too.
  static constexpr uint64_t Bookkeeping(uint64_t pieces) { return 288 + pieces * sizeof(PlacedPiece); }

  MutableByteSpan span() { return memory_ ? memory_.span() : reserve_.span(); }
  ByteSpan span() const { return memory_ ? ByteSpan(memory_.span()) : reserve_.span(); }
  /// Returns the pieces of a row; empty for samples.
  std::span<const PlacedPiece> pieces() const { return pieces_; }

  /// True if all of it was asked for, and was fetched or failed for good.
  bool ready() const { return unasked_ == 0 && pending_ == 0; }
  /// Returns the reason, when ready, why there are no bytes. Only samples have DataLoss.
  const absl::Status& status() const { return status_; }
  struct Damage {
    uint32_t piece = 0;
    absl::Status status;
  };
  /// Returns the pieces of a row, when ready, that are damaged.
  std::span<const Damage> damaged() const { return damaged_; }
  RequestPhase phase() const;
  /// Returns the progress of one of the requests in flight, if there are any.
  const std::shared_ptr<RequestProgress>& request() const { return request_; }

  std::optional<UnitId> waiting;  // the unit that waits for it to be ready; none if it was not asked for

 private:
  friend class Fetcher;
  /// Returns the first piece that was not asked for; unasked_ > 0.
  uint32_t NextPiece() const;
  bool asked(uint32_t piece) const { return pieces_.empty() ? unasked_ == 0 : pieces_[piece].asked; }
  void Ask(uint32_t piece, const std::shared_ptr<RequestProgress>& progress);
  /// Ends a piece that was asked for.
  void Settle(uint32_t piece, const absl::Status& status);

  ArenaBlock memory_;
  Buffer reserve_;
  uint64_t* const bookkeeping_ = nullptr;
  std::vector<PlacedPiece> pieces_;
  uint32_t unasked_;      // pieces, or the sample
  uint32_t pending_ = 0;  // asked for, and not settled
  absl::Status status_;
  std::vector<Damage> damaged_;
  std::shared_ptr<RequestProgress> request_;
};

}  // namespace millrace
