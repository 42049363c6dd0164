#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "pipeline/row_decoder.h"
#include "pipeline/sample_digest.h"

namespace millrace {

/// Turns the fetched pieces of a row of tokens into a row of a batch; a damaged piece that is replaced becomes padding.
class TokenDecoder final : public RowDecoder {
 public:
  /// Keeps a reference to the plan, which outlives the decoder.
  explicit TokenDecoder(const LoaderPlan& plan) : plan_(plan), source_(plan.source) {}

  absl::StatusOr<DecodedRow> Decode(const BatchRow& to, const FetchedItem& fetched) override;

 private:
  absl::StatusOr<Uint128> DecodePiece(const BatchRow& to, const PlacedPiece& placed, uint32_t number, ByteSpan stored);
  absl::Status Damaged(const BatchRow& to, const PlacedPiece& placed, const absl::Status& damage, DecodedRow* decoded);
  void Describe(const BatchRow& to);
  std::string NameOf(const BatchRow& to) const;

  const LoaderPlan& plan_;
  const Source& source_;
  Xxh3Stream stream_;
  IndexedSample entry_;  // of the sample in hand
  TokenRows::Place place_;
};

/// Returns the digest of a piece. The digest of an epoch is the sum of these digests modulo 2^128. The digest of a
/// piece is XXH3-128 (seed 0) of
/// - u64 epoch, u64 position, u64 start in the row,
/// - u64 length of the sample's key, key,
/// - u64 offset of its first token, u64 tokens, and the tokens as they are stored.
Uint128 HashPiece(Xxh3Stream* stream, const BatchRow& row, const PlacedPiece& placed, std::string_view key,
                  ByteSpan stored);

}  // namespace millrace
