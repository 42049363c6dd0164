#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plan/order_policy.h"

/// Finds out whether the default shuffle mixes samples that are sorted by class. Pure.

namespace millrace {

/// Beside pairs of one class by chance, windows of K extents, which are anywhere in the data, have about classes / K as
/// many more (docs/shuffle.md). Up to this sum, and for ImageNet in the default order, windows mix classes.
inline constexpr double kMixedClustering = 8;

struct SortedClasses {
  uint64_t samples = 0;
  uint64_t classes = 0;
};

/// Returns a sentence that says how the default shuffle falls short, and what helps. Returns nothing if all samples fit
/// into one window, if extents have one sample each, which is a global shuffle, or if windows hold many classes.
std::optional<std::string> AdviseShuffle(const SortedClasses& data, const OrderPolicy& policy);

}  // namespace millrace
