#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "pipeline/fetched_item.h"
#include "pipeline/loader_plan.h"
#include "pipeline/sample_decoder.h"

namespace millrace {

/// A row of tokens, and where it goes.
struct TokenRow {
  uint64_t epoch = 0;
  uint64_t position = 0;
  uint64_t item = 0;
  bool counts = true;         // false: a wrapped repeat, which is in no digest and no report
  std::byte* slot = nullptr;  // memory of the batch, divided as `layout` says
  const SlotLayout* layout = nullptr;
  size_t row = 0;
  std::string* key = nullptr;  // becomes that of its first piece
};

/// Turns the fetched pieces of a row into a row of a batch. Keeps scratch memory: one thread at a time.
class TokenDecoder {
 public:
  /// The plan outlives the decoder.
  explicit TokenDecoder(const LoaderPlan& plan) : plan_(plan), source_(plan.source) {}

  /// `fetched` is ready. A damaged piece (DataLoss) is an error with its sample's name, or becomes padding, as the plan
  /// says. All other errors are no fault of the sample.
  absl::StatusOr<DecodedRow> Decode(const TokenRow& to, const FetchedItem& fetched);

 private:
  absl::StatusOr<Uint128> DecodePiece(const TokenRow& to, const PlacedPiece& placed, uint32_t number, ByteSpan stored);
  absl::Status Damaged(const TokenRow& to, const PlacedPiece& placed, const absl::Status& damage, DecodedRow* decoded);
  void Describe(const TokenRow& to);
  std::string NameOf(const TokenRow& to) const;

  const LoaderPlan& plan_;
  const Source& source_;
  Xxh3Stream stream_;
  IndexedSample entry_;  // of the sample in hand
  TokenRows::Place place_;
};

/// Fills the rows of a batch from `first` on: padding in the arrays of tokens.
void PadRows(const LoaderPlan& plan, const SlotLayout& layout, std::byte* slot, uint64_t first);

/// The digest of a piece, of which that of an epoch is the sum modulo 2^128: XXH3-128 (seed 0) of u64 epoch, u64
/// position, u64 start in the row, u64 length of the sample's key, key, u64 offset of its first token, u64 tokens, and
/// the tokens as they are stored.
Uint128 HashPiece(Xxh3Stream* stream, const TokenRow& row, const PlacedPiece& placed, std::string_view key,
                  ByteSpan stored);

}  // namespace millrace
