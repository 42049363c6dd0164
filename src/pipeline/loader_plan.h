#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/loader.h"

namespace millrace {

/// Where the parts of a batch lie in its slot of memory. Fixed for a loader.
struct SlotLayout {
  uint64_t batch = 0;
  uint64_t image_bytes = 0;  // of one image
  uint64_t labels = 0;       // offsets
  uint64_t mask = 0;
  uint64_t samples = 0;
  uint64_t parts = 0;
  uint64_t bytes = 0;  // of the slot

  SlotLayout() = default;
  SlotLayout(uint64_t batch_size, uint64_t bytes_of_image, bool with_parts);
};

/// The options after defaults, checks and sizes were settled, by Settle().
struct LoaderPlan {
  LoaderOptions options;
  Source source;
  std::vector<OrderPolicy> policies;  // of each part of the source
  std::optional<Mix> mix;             // absent: one part, each sample once an epoch
  Batching batching;
  SlotLayout layout;
  std::vector<std::string> image_fields;  // one of which each sample has; empty: nothing is decoded
  std::optional<LabelOptions> label;
  bool text_labels = false;
  uint64_t fingerprint = 0;
  uint64_t fetch_bytes = 0;  // for fetched samples
  uint64_t slots = 0;

  const OrderPolicy& policy() const { return policies.front(); }
  Plan PlanOf(uint64_t epoch) const;
};
absl::StatusOr<LoaderPlan> Settle(const Source& source, LoaderOptions options);

}  // namespace millrace
