#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/loader.h"

namespace millrace {

/// Where the parts of a batch of one shape lie in its slot of memory. Fixed for a loader.
struct SlotLayout {
  uint64_t batch = 0;
  uint64_t image_bytes = 0;    // of one image
  uint64_t length = 0;         // of a row of tokens; 0: there are none
  uint64_t token_bytes = 0;    // of one token
  bool with_segments = false;  // position_ids and segment_ids
  uint64_t images = 0;         // offsets
  uint64_t tokens = 0;
  uint64_t token_mask = 0;
  uint64_t position_ids = 0;
  uint64_t segment_ids = 0;
  uint64_t labels = 0;
  uint64_t mask = 0;
  uint64_t samples = 0;
  uint64_t parts = 0;
  uint64_t rows = 0;
  uint64_t bytes = 0;  // of the slot

  /// The offsets, of what is said above them.
  void Lay(bool with_parts);
};

/// The options after defaults, checks and sizes were settled, by Settle().
struct LoaderPlan {
  LoaderOptions options;
  Source source;
  std::vector<OrderPolicy> policies;      // of each part of the source
  std::optional<Mix> mix;                 // absent: one part, each sample once an epoch; or buckets
  Batching batching;                      // of all items; not with buckets
  std::vector<Batching> buckets;          // of each part of the source, where these are buckets
  std::vector<SlotLayout> layouts;        // the declared shapes: one, or one for each bucket
  uint64_t slot_bytes = 0;                // of the largest
  std::vector<std::string> image_fields;  // one of which each sample has; empty: nothing is decoded
  std::optional<LabelOptions> label;
  bool text_labels = false;
  std::vector<std::vector<int64_t>>
      class_numbers;  // of each part: its classes, by their numbers there; empty: the same
  uint64_t fingerprint = 0;
  uint64_t fetch_bytes = 0;  // for fetched samples or rows, and what belongs to each of them
  uint64_t group_bytes = 0;  // for groups of rows
  uint64_t slots = 0;

  const OrderPolicy& policy() const { return policies.front(); }
  bool bucketed() const { return !buckets.empty(); }
  /// With draws from several parts, whose numbers batches carry.
  bool with_parts() const { return mix.has_value() || bucketed(); }
  /// What positions count: items, or, with buckets, steps.
  uint64_t positions() const;
  uint64_t steps() const { return StepsFrom(0); }  // of an epoch
  /// Steps that are left after `consumed`, and what is consumed after the next one; as Batching's.
  uint64_t StepsFrom(uint64_t consumed) const;
  uint64_t After(uint64_t consumed) const;
};
absl::StatusOr<LoaderPlan> Settle(const Source& source, LoaderOptions options);

/// The shapes that the loader emits, in the order of `layouts`.
std::vector<BatchShape> ShapesOf(const LoaderPlan& plan);

}  // namespace millrace
