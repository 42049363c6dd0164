#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "pipeline/loader_plan.h"
#include "pipeline/sample_decoder.h"

namespace millrace {

/// A piece of a row of tokens, and where it goes.
struct TokenUnit {
  uint64_t epoch = 0;
  uint64_t position = 0;
  uint64_t item = 0;
  bool counts = true;  // false: a wrapped repeat, which is in no digest and no report
  RowPiece piece;
  uint64_t start = 0;         // its first token's place in the row
  uint32_t number = 0;        // of the piece in the row, from 0
  bool last = false;          // of the row: what is behind it is padding
  std::byte* slot = nullptr;  // memory of the batch, divided as `layout` says
  const SlotLayout* layout = nullptr;
  size_t row = 0;
  std::string* key = nullptr;  // of the row, for its first piece
};

/// Turns the fetched bytes of a piece into its stretch of a row; pieces of a row may be turned at once by several.
/// Keeps scratch memory: one thread at a time.
class TokenDecoder {
 public:
  /// The plan outlives the decoder.
  explicit TokenDecoder(const LoaderPlan& plan) : plan_(plan), source_(plan.source) {}

  /// `bytes` are those of TokenRows::Find's span, or the reason why there are none. A damaged piece (DataLoss) is an
  /// error with its sample's name, or becomes padding, as the plan says. All other errors are no fault of the sample.
  absl::StatusOr<DecodedRow> Decode(const TokenUnit& to, const absl::StatusOr<ByteSpan>& bytes);

 private:
  absl::StatusOr<Uint128> DecodeInto(const TokenUnit& to, ByteSpan bytes);
  void Describe(const TokenUnit& to);
  std::string NameOf(const TokenUnit& to) const;

  const LoaderPlan& plan_;
  const Source& source_;
  Xxh3Stream stream_;
  IndexedSample entry_;  // of the sample in hand
  TokenRows::Place place_;
};

/// Fills the rows of a batch from `first` on, and what lies behind the tokens of each: padding in all arrays.
void PadRows(const LoaderPlan& plan, const SlotLayout& layout, std::byte* slot, uint64_t first);

/// The digest of a piece, of which that of an epoch is the sum modulo 2^128: XXH3-128 (seed 0) of u64 epoch, u64
/// position, u64 start in the row, u64 length of the sample's key, key, u64 offset of its first token, u64 tokens, and
/// the tokens as they are stored.
Uint128 HashPiece(Xxh3Stream* stream, const TokenUnit& unit, std::string_view key, ByteSpan stored);

}  // namespace millrace
