#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace millrace {

enum class LastBatch { kDrop, kPad, kWrap, kShort };

absl::StatusOr<LastBatch> ParseLastBatch(std::string_view text);  // "drop", "pad", "wrap", "short"

/// Divides the positions of an epoch into batches and among ranks. Pure arithmetic.
///
/// A step takes `batch * world` consecutive positions. Rank r gets the positions that are r modulo world, in order.
/// That also holds if a step begins at a position that is not a multiple of the world (after a change of world). All
/// ranks make equally many steps. The last, short step is dropped, padded, wrapped (slots without a sample repeat the
/// epoch's first positions), or shortened. A shortened step gives every rank as few rows as hold all samples. Rows
/// without a sample of their own, which are fewer than `world`, repeat as wrapped ones do.
///
/// For example, with batch 2 and world 2, the first step takes positions 0 to 3: rank 0 gets 0 and 2, rank 1 gets 1 and
/// 3.
struct Batching {
  static constexpr uint64_t kMaxBatch = uint64_t{1} << 32;
  static constexpr uint64_t kMaxWorld = uint64_t{1} << 20;

  uint64_t samples = 0;  // of the epoch
  uint64_t batch = 1;    // per rank
  uint64_t rank = 0;
  uint64_t world = 1;
  LastBatch last = LastBatch::kPad;
  /// So many samples of the step at the epoch's begin, of all ranks, come from elsewhere (staged_loader.h): it takes as
  /// many fewer. Less than a step, and only with kPad.
  uint64_t begun = 0;

  /// Returns InvalidArgument with the reason: limits, a rank outside its world, an epoch that would have no step. The
  /// functions below presuppose that this is ok.
  absl::Status Check() const;

  /// Returns the number of steps that are left after `consumed` samples of the epoch. 0 means that the epoch is over.
  uint64_t StepsFrom(uint64_t consumed) const;

  /// Describes one slot of a batch: the position it takes. Slots beyond the epoch are `padding` (kPad: position is
  /// `samples`; kWrap, kShort: position repeats one of the epoch's first and must be delivered, but counts in no
  /// digest).
  struct Slot {
    uint64_t position = 0;
    bool padding = false;
  };
  /// Returns slot `row` (0 .. batch-1) of this rank's batch in the step that begins after `consumed` samples.
  /// StepsFrom(consumed) > 0.
  Slot At(uint64_t consumed, uint64_t row) const;

  /// Returns how many slots of this rank's batch in that step take a sample of their own: the first ones.
  uint64_t Taken(uint64_t consumed) const;

  /// Returns how many rows this and every rank's batch has in that step: `batch`, or with kShort perhaps fewer in the
  /// last step.
  uint64_t Rows(uint64_t consumed) const;

  /// Returns true if slots without a sample of their own repeat one: kWrap and kShort.
  bool repeats() const { return last == LastBatch::kWrap || last == LastBatch::kShort; }

  /// Returns one past the last position that the epoch delivers after `consumed` samples: `samples`, less the dropped
  /// ones.
  uint64_t End(uint64_t consumed) const;

  /// Returns the samples consumed by all ranks after the step that begins after `consumed`: at most `samples`. With
  /// kDrop the last full step consumes the dropped ones, too, so that the position after it is the start of the next
  /// epoch for every batch size and world.
  uint64_t After(uint64_t consumed) const;

 private:
  /// Returns the number of positions that the step after `consumed` takes, unless the epoch ends before.
  uint64_t StepSize(uint64_t consumed) const { return batch * world - (consumed == 0 ? begun : 0); }
  /// Returns the first position of this rank from `consumed` on. If `consumed` is not a multiple of the world, other
  /// ranks begin.
  uint64_t FirstPosition(uint64_t consumed) const;
};

}  // namespace millrace
