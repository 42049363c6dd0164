#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "pipeline/batch_layout.h"
#include "pipeline/loader.h"
#include "pipeline/planned_fields.h"

namespace millrace {

/// The options after defaults, checks and sizes were settled, by Settle().
struct LoaderPlan {
  LoaderOptions options;
  Source source;                      // without the samples that OnlyImageSamples leaves out
  std::vector<std::string> left_out;  // its sentences
  std::vector<OrderPolicy> policies;  // of each part of the source
  std::optional<Mix> mix;             // absent: one part, each sample once an epoch; or buckets
  Batching batching;                  // of all items; not with buckets
  std::vector<Batching> buckets;      // of each part of the source, if these are buckets
  std::vector<BatchLayout> layouts;   // the declared shapes: one, or one for each bucket
  uint64_t slot_bytes = 0;            // of the largest
  std::vector<PlannedField> fields;   // of samples; empty: nothing is decoded, or items are rows of tokens
  uint64_t fingerprint = 0;
  uint64_t fetch_bytes = 0;    // for fetched samples or rows, and what belongs to each of them
  uint64_t unused_bytes = 0;   // of the budget: the items of an epoch need no more than fetch_bytes
  uint64_t epoch_bytes = 0;    // of the items of an epoch that this rank gets, with what belongs to each of them
  uint64_t group_bytes = 0;    // for groups of rows
  uint64_t value_bytes = 0;    // for the values of rows that the consumer has not taken yet
  uint64_t account_bytes = 0;  // for all but batches and fetched items
  uint64_t slots = 0;

  const OrderPolicy& policy() const { return policies.front(); }
  bool bucketed() const { return !buckets.empty(); }
  /// True if draws come from several parts, whose numbers batches carry.
  bool with_parts() const { return mix.has_value() || bucketed(); }
  /// The number that positions count up to: items, or, with buckets, steps.
  uint64_t positions() const;
  uint64_t steps() const { return StepsFrom(0); }  // of an epoch
  /// Returns the steps that are left after `consumed`, and the number that is consumed after the next one; as
  /// Batching's.
  uint64_t StepsFrom(uint64_t consumed) const;
  uint64_t After(uint64_t consumed) const;
};
absl::StatusOr<LoaderPlan> Settle(const Source& source, LoaderOptions options);
/// Settles the order alone: nothing about memory, and about fields only which samples there are (image_samples.h).
/// Refuses no options about memory and fields.
absl::StatusOr<LoaderPlan> SettleOrder(const Source& source, LoaderOptions options);

/// Returns ResourceExhausted: the process's budget has no room for a loader of `memory` bytes, or the system refused
/// memory, or a thread, for one: `error` says which.
absl::Status NoRoomForLoader(uint64_t memory, const MemoryBudget& budget);
absl::Status LoaderRefused(uint64_t memory, const std::exception& error);

/// Returns the shapes that the loader emits, in the order of `layouts`.
std::vector<BatchShape> ShapesOf(const LoaderPlan& plan);

}  // namespace millrace
