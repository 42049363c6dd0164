#include "inspect/shuffle_advice.h"

#include <fmt/format.h>

namespace millrace {

std::optional<std::string> AdviseShuffle(const SortedClasses& data, const OrderPolicy& policy) {
  if (policy.extent <= 1 || data.samples <= policy.extent * policy.window) return std::nullopt;
  const double clustering = 1 + static_cast<double>(data.classes) / static_cast<double>(policy.window);
  if (clustering <= kMixedClustering) return std::nullopt;
  return fmt::format(
      "The samples are sorted by class, and the default shuffle mixes {} extents at a time (`window`), of {} classes. "
      "A "
      "batch has about {:.0f} times as many pairs of one class as by chance. Train with --shuffle global (in Python "
      "shuffle=\"global\"), or with a larger --window.",
      policy.window, data.classes, clustering);
}

}  // namespace millrace
