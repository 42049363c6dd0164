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

/// What one decode task does: a row of a batch. Steps are counted over the life of a loader.
struct UnitId {
  uint64_t step = 0;
  uint32_t unit = 0;
  friend auto operator<=>(const UnitId&, const UnitId&) = default;
};

/// A piece of a row, and where its tokens lie in those of the row.
struct PlacedPiece {
  Segment piece;
  uint32_t start = 0;  // tokens
  bool asked = false;  // for its bytes, by the Fetcher
};

/// The stored bytes of an item: those of a sample's span, or of the tokens of a row, one piece behind the other. Other
/// threads than that of the Fetcher's owner may read the bytes, pieces and result of a ready one.
class FetchedItem {
 public:
  /// Memory of an arena (empty: there are no bytes). `bookkeeping`, which stands for what items take beside it, is
  /// greater by Bookkeeping(pieces) while the item lives.
  FetchedItem(ArenaBlock memory, std::vector<PlacedPiece> pieces, uint64_t* bookkeeping);
  /// Memory of its own.
  FetchedItem(Buffer reserve, std::vector<PlacedPiece> pieces);
  ~FetchedItem();
  FetchedItem(const FetchedItem&) = delete;
  FetchedItem& operator=(const FetchedItem&) = delete;

  /// Bytes beside those of the arena: of the item and the table that it is in. Charged so that millions of tiny items
  /// stay within the budget, too.
  static constexpr uint64_t Bookkeeping(uint64_t pieces) { return 288 + pieces * sizeof(PlacedPiece); }

  MutableByteSpan span() { return memory_ ? memory_.span() : reserve_.span(); }
  ByteSpan span() const { return memory_ ? ByteSpan(memory_.span()) : reserve_.span(); }
  /// Of a row; empty for samples.
  std::span<const PlacedPiece> pieces() const { return pieces_; }

  /// All of it was asked for, and fetched or failed for good.
  bool ready() const { return unasked_ == 0 && pending_ == 0; }
  /// When ready: why there are no bytes. DataLoss is of samples only.
  const absl::Status& status() const { return status_; }
  struct Damage {
    uint32_t piece = 0;
    absl::Status status;
  };
  /// When ready: pieces of a row that are damaged.
  std::span<const Damage> damaged() const { return damaged_; }
  RequestPhase phase() const;
  /// One of those in flight, if there are any.
  const std::shared_ptr<RequestProgress>& request() const { return request_; }

  std::optional<UnitId> waiting;  // for it to be ready; none while nobody has asked for it

 private:
  friend class Fetcher;
  /// The first piece that was not asked for; unasked_ > 0.
  uint32_t NextPiece() const;
  bool asked(uint32_t piece) const { return pieces_.empty() ? unasked_ == 0 : pieces_[piece].asked; }
  void Ask(uint32_t piece, const std::shared_ptr<RequestProgress>& progress);
  /// What was asked for has ended.
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
