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

/// Returns the number of a sample that takes the place of a damaged `item`. It is of the same part, so that the counts
/// of a mix stay as they are.
uint64_t ReplacementOf(const LoaderPlan& plan, uint64_t epoch, uint64_t item, uint64_t attempt);

/// Turns the bytes of a sample into the fields of the batch, its key and digest.
class SampleDecoder final : public RowDecoder {
 public:
  /// The plan and `memory` outlive the decoder.
  SampleDecoder(const LoaderPlan& plan, ImageMemory* memory)
      : plan_(plan), source_(plan.source), decoder_(memory), frames_(plan.fields.size()) {}

  absl::StatusOr<DecodedRow> Decode(const BatchRow& to, const FetchedItem& fetched) override;

 private:
  absl::StatusOr<DecodedRow> Damaged(const BatchRow& to, const absl::Status& damage) const;
  absl::StatusOr<DecodedRow> Masked(const BatchRow& to, const absl::Status& damage) const;
  absl::StatusOr<QuarantinedSample> Quarantine(const BatchRow& to, const absl::Status& damage) const;
  absl::StatusOr<DecodedRow> Replaced(const BatchRow& to, const Uint128& digest) const;
  absl::StatusOr<Uint128> DecodeInto(const BatchRow& to, uint64_t item, ByteSpan bytes);
  absl::StatusOr<const IndexedField*> Find(const PlannedField& field) const;
  absl::Status DecodeValue(const BatchRow& to, uint64_t item, size_t number, ByteSpan value);
  absl::Status DecodeImage(const BatchRow& to, uint64_t item, size_t number, ByteSpan file);
  absl::Status DecodeBoxes(const BatchRow& to, const PlannedField& field, ByteSpan value);
  absl::Status DecodeLabel(const BatchRow& to, uint64_t item, const PlannedField& field, ByteSpan stored);
  absl::StatusOr<int64_t> ClassOf(const PlannedField& field, uint64_t item, int64_t label) const;

  uint64_t AugmentKey(const BatchRow& to, uint64_t item, std::string_view image) const;

  const LoaderPlan& plan_;
  const Source& source_;
  ImageDecoder decoder_;
  uint64_t odd_images_ = 0;  // of the sample in hand
  SampleHasher hasher_;
  IndexedSample entry_;         // of the sample in hand
  IndexedObject object_;        // the shard of this sample, if its place is its key
  uint64_t place_key_ = 0;      // the key of this place
  std::string scratch_;         // a value that is not stored as it is
  std::vector<Frame> frames_;   // of the images, by the numbers of their fields
  std::vector<Buffer> pixels_;  // of the images, for the digest of decoded pixels
  std::vector<SampleHasher::Decoded> decoded_;
};

}  // namespace millrace
