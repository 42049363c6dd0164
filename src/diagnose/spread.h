#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace millrace {

/// Summarizes several measurements of one thing. All zero if there were none.
struct Spread {
  double median = 0;
  double least = 0;
  double most = 0;

  static Spread Of(std::vector<double> values) {
    if (values.empty()) return {};
    std::sort(values.begin(), values.end());
    const size_t half = values.size() / 2;
    const double median = values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
    return {.median = median, .least = values.front(), .most = values.back()};
  }
  /// Returns true if the two ranges have a value in common, so that their difference may be chance.
  bool Overlaps(const Spread& other) const { return least <= other.most && other.least <= most; }
};

/// Returns the value that the share of them does not exceed; 0 if there are no values. `values` are sorted.
inline double QuantileOf(const std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  const auto rank = static_cast<size_t>(share * static_cast<double>(values.size()));
  return values[std::min(values.size() - 1, rank)];
}

}  // namespace millrace
