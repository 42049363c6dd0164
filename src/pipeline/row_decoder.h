#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/fetched_item.h"
#include "pipeline/loader_plan.h"

namespace millrace {

/// Represents a sample that was chosen in place of a damaged one.
struct Replacement {
  absl::Status damage;   // of the sample that the plan wants
  uint64_t item = 0;     // the sample in its place
  uint64_t attempt = 0;  // from 0 on
};

/// Represents a row of a batch, and the draw that the plan wants there.
struct BatchRow {
  uint64_t epoch = 0;
  uint64_t position = 0;
  Draw draw;
  bool counts = true;         // false: a repeat, which is in no digest and no report
  bool valid = true;          // as the batch says of the row, once it holds its sample
  std::byte* slot = nullptr;  // memory of the batch, divided as `layout` says
  const BatchLayout* layout = nullptr;
  size_t row = 0;
  std::string* key = nullptr;                // becomes the sample's; of a row of tokens, that of its first piece
  BatchValues* values = nullptr;             // the columns of the batch, as the plan numbers them
  const Replacement* replacement = nullptr;  // the fetched sample, if it is not the one of the plan

  /// The row's part of the array of that name; empty if there is none.
  MutableByteSpan At(std::string_view name) const { return layout->Row(slot, name, row); }
  /// Sets the origin of the row's contents.
  void SetOrigin(uint64_t sample, size_t part) const;
};

struct DecodedRow {
  Uint128 digest;                              // zero when none is wanted
  uint64_t tokens = 0;                         // of rows of tokens, without those of damaged pieces
  std::vector<QuarantinedSample> quarantined;  // the sample; of a row of tokens, its damaged pieces
  uint64_t odd_images = 0;                     // with warnings of their codec
  absl::Status damage;                         // DataLoss: nothing was decoded, and another sample is to take its place
};

/// Turns fetched bytes into a row of a batch; images and tokens have different ones. The result for an item depends on
/// the plan, the epoch and the item alone. Keeps scratch memory: one thread at a time.
class RowDecoder {
 public:
  virtual ~RowDecoder() = default;
  /// Decodes an item; `fetched` is ready. If the item is damaged (DataLoss), the result is an error with its sample's
  /// name, or it is replaced, as the plan says. All other errors are no fault of the sample.
  virtual absl::StatusOr<DecodedRow> Decode(const BatchRow& to, const FetchedItem& fetched) = 0;
};

/// Makes the decoder for the plan's items. The plan and `memory`, which large images are granted, outlive it.
std::unique_ptr<RowDecoder> MakeRowDecoder(const LoaderPlan& plan, ImageMemory* memory);

}  // namespace millrace
