#include "pipeline/fetched_item.h"

#include <algorithm>

namespace millrace {

static_assert(sizeof(FetchedItem) + 128 <= FetchedItem::Bookkeeping(0),
              "with its control block, and a slot of a hash table that may be just 7/16 full");

FetchedItem::FetchedItem(ArenaBlock memory, std::vector<PlacedPiece> pieces, uint64_t* bookkeeping)
    : memory_(std::move(memory)),
      bookkeeping_(bookkeeping),
      pieces_(std::move(pieces)),
      unasked_(std::max(1u, static_cast<uint32_t>(pieces_.size()))) {
  *bookkeeping_ += Bookkeeping(pieces_.size());
}

FetchedItem::FetchedItem(Buffer reserve, std::vector<PlacedPiece> pieces)
    : reserve_(std::move(reserve)),
      pieces_(std::move(pieces)),
      unasked_(std::max(1u, static_cast<uint32_t>(pieces_.size()))) {}

FetchedItem::~FetchedItem() {
  if (bookkeeping_ != nullptr) *bookkeeping_ -= Bookkeeping(pieces_.size());
}

RequestPhase FetchedItem::phase() const {
  const RequestPhase phase = request_ ? request_->load(std::memory_order_relaxed) : RequestPhase::kQueued;
  // A row may lie in several places: one part of it came, and others are in flight.
  return phase == RequestPhase::kDone && !ready() ? RequestPhase::kBody : phase;
}

uint32_t FetchedItem::NextPiece() const {
  const auto found =
      std::find_if(pieces_.begin(), pieces_.end(), [](const PlacedPiece& piece) { return !piece.asked; });
  return pieces_.empty() ? 0 : static_cast<uint32_t>(found - pieces_.begin());
}

void FetchedItem::Ask(uint32_t piece, const std::shared_ptr<RequestProgress>& progress) {
  if (!pieces_.empty()) pieces_[piece].asked = true;
  --unasked_;
  ++pending_;
  if (request_ == nullptr || request_->load(std::memory_order_relaxed) == RequestPhase::kDone) request_ = progress;
}

void FetchedItem::Settle(uint32_t piece, const absl::Status& status) {
  --pending_;
  if (status.ok()) return;
  if (!pieces_.empty() && absl::IsDataLoss(status)) {
    damaged_.push_back({piece, status});
  } else if (status_.ok()) {
    status_ = status;
  }
}

}  // namespace millrace
