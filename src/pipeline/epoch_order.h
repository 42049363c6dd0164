#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "pipeline/loader_plan.h"

namespace millrace {

/// Represents the steps of one epoch and the rows of their batches, for one rank; `consumed` counts the same as
/// positions. For example, with 4 ranks and batches of 128, the rows of rank 1 in step 0 are positions 1, 5, 9 .. 509
/// of the plan. Without buckets a step is a stretch of the plan. With buckets, each bucket has a plan and steps of its
/// own, and an exact mix of all their steps gives their order: then a step is a position. Not thread-safe; must not
/// outlive the loader's plan.
class EpochOrder {
 public:
  EpochOrder(const LoaderPlan& loader, uint64_t epoch);

  /// Represents the step that begins after `consumed`; LoaderPlan::StepsFrom(consumed) > 0.
  struct Step {
    size_t shape = 0;    // of LoaderPlan::layouts
    uint64_t batch = 0;  // rows of the batch
    uint64_t taken = 0;  // of these hold an item of their own: the first ones
    uint64_t rows = 0;   // of these hold an item, maybe repeated
  };
  Step StepAt(uint64_t consumed) const;

  struct Row {
    uint64_t position = 0;  // of the item: in the order of the epoch, or behind those of the buckets before
    uint64_t turn = 0;      // grows from row to row of this rank
    Draw draw;
    bool counts = true;  // false: a repeat
  };
  /// Returns row `row` of this rank in that step; row < rows. Fastest in ascending order.
  Row RowAt(uint64_t consumed, uint64_t row);

  /// Returns Row::turn of the draw, if it comes to this rank in the step after `consumed` or later, and counts.
  std::optional<uint64_t> TurnOf(const Draw& draw, uint64_t consumed) const;
  /// Returns Row::turn of the draw, for any rank and row that it comes to in this epoch; nullopt if it does not come.
  std::optional<uint64_t> AnyTurnOf(const Draw& draw) const;
  /// Returns the first turn of the item from `from` on, of any draw; nullopt if it does not come there.
  std::optional<uint64_t> NextTurnOf(uint64_t item, uint64_t from) const;
  /// The number after the last turn of an epoch; it is the same for all epochs.
  uint64_t turns() const;
  /// True if a draw's turn is known: draws without inverse are fetched one by one.
  bool invertible() const { return plans_.front().invertible(); }

 private:
  struct Place {
    size_t bucket = 0;
    uint64_t consumed = 0;  // of the bucket, before this step
  };
  Place PlaceOf(uint64_t step) const;

  const LoaderPlan& loader_;
  std::vector<Plan> plans_;    // of all items, or of each bucket
  std::optional<Plan> steps_;  // of buckets: its items are the steps, those of one bucket behind those of the other
  std::vector<uint64_t> first_steps_;
  uint64_t turns_per_step_ = 0;
  std::vector<std::unique_ptr<Plan::Cursor>> cursors_;
};

/// Returns the mix of the steps of all buckets, evenly interleaved; within a cycle of the mix the steps of one bucket
/// are permuted.
Mix MixOfSteps(const std::vector<Batching>& buckets);

}  // namespace millrace
