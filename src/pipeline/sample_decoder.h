#pragma once

#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "pipeline/loader_plan.h"
#include "pipeline/sample_digest.h"

namespace millrace {

/// A row of a batch, and the draw that the plan wants there.
struct BatchRow {
  uint64_t epoch = 0;
  uint64_t position = 0;
  Draw draw;
  bool counts = true;         // false: a wrapped repeat, which is in no digest and no report
  std::byte* slot = nullptr;  // memory of the batch, divided as LoaderPlan::layouts.front() says
  size_t row = 0;
  std::string* key = nullptr;   // becomes the sample's
  std::string* text = nullptr;  // becomes the label, where labels are text
};

struct DecodedRow {
  Uint128 digest;                              // zero when none is wanted
  uint64_t tokens = 0;                         // of rows of tokens, without those of damaged pieces
  std::vector<QuarantinedSample> quarantined;  // the sample; of a row of tokens, its damaged pieces
};

/// Turns the bytes of a sample into a row of a batch: image, label, mask, key, digest. What a sample becomes depends on
/// the plan, the epoch and the sample alone. Keeps scratch memory: one thread at a time.
class SampleDecoder {
 public:
  /// The plan outlives the decoder.
  SampleDecoder(const LoaderPlan& plan, std::stop_token stop);

  /// `bytes` are those of the sample's span, or the reason why there are none. A damaged sample (DataLoss, of `bytes`
  /// or of what they mean) is an error with its name, or replaced by another of the same part, as the plan says;
  /// reading that one blocks. All other errors are no fault of the sample.
  absl::StatusOr<DecodedRow> Decode(const BatchRow& to, const absl::StatusOr<ByteSpan>& bytes);

 private:
  absl::StatusOr<DecodedRow> Replace(const BatchRow& to, const absl::Status& damage);
  absl::StatusOr<Uint128> DecodeInto(const BatchRow& to, uint64_t item, ByteSpan bytes);
  absl::Status DecodeLabel(const BatchRow& to, uint64_t item, ByteSpan bytes);
  absl::StatusOr<const IndexedField*> FindImage() const;
  absl::StatusOr<std::string_view> DecodeImage(const BatchRow& to, uint64_t item, ByteSpan bytes);

  uint64_t AugmentKey(const BatchRow& to, uint64_t item) const;

  const LoaderPlan& plan_;
  const Source& source_;
  const std::stop_token stop_;
  ImageDecoder decoder_;
  SampleHasher hasher_;
  IndexedSample entry_;  // of the sample in hand
  std::string scratch_;  // a value that is not stored as it is
  Buffer pixels_;        // for the digest of decoded pixels
};

}  // namespace millrace
