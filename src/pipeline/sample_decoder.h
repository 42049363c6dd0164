#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "pipeline/row_decoder.h"
#include "pipeline/sample_digest.h"

namespace millrace {

/// The number of a sample that takes the place of a damaged `item`: of the same part, so that the counts of a mix stay
/// what they are.
uint64_t ReplacementOf(const LoaderPlan& plan, uint64_t epoch, uint64_t item, uint64_t attempt);

/// Turns the bytes of a sample into image, label, mask, key and digest.
class SampleDecoder final : public RowDecoder {
 public:
  /// The plan and `memory` outlive the decoder.
  SampleDecoder(const LoaderPlan& plan, ImageMemory* memory) : plan_(plan), source_(plan.source), decoder_(memory) {}

  absl::StatusOr<DecodedRow> Decode(const BatchRow& to, const FetchedItem& fetched) override;

 private:
  absl::StatusOr<DecodedRow> Damaged(const BatchRow& to, const absl::Status& damage) const;
  absl::StatusOr<DecodedRow> Replaced(const BatchRow& to, const Uint128& digest) const;
  absl::StatusOr<Uint128> DecodeInto(const BatchRow& to, uint64_t item, ByteSpan bytes);
  absl::Status DecodeLabel(const BatchRow& to, uint64_t item, ByteSpan bytes);
  absl::StatusOr<const IndexedField*> FindImage() const;
  absl::StatusOr<std::string_view> DecodeImage(const BatchRow& to, uint64_t item, ByteSpan bytes);

  uint64_t AugmentKey(const BatchRow& to, uint64_t item) const;

  const LoaderPlan& plan_;
  const Source& source_;
  ImageDecoder decoder_;
  SampleHasher hasher_;
  IndexedSample entry_;  // of the sample in hand
  std::string scratch_;  // a value that is not stored as it is
  Buffer pixels_;        // for the digest of decoded pixels
};

}  // namespace millrace
