#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace millrace {

/// Returns how far a histogram is from flat, in standard deviations of the chi-square statistic. Up to about 4 either
/// way is chance; each bin should expect at least five entries.
inline double ChiSquareZ(const std::vector<uint64_t>& counts) {
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
  const double expected = total / static_cast<double>(counts.size());
  double chi_square = 0;
  for (const uint64_t count : counts) chi_square += std::pow(static_cast<double>(count) - expected, 2) / expected;
  const auto freedom = static_cast<double>(counts.size() - 1);
  return (chi_square - freedom) / std::sqrt(2 * freedom);
}

}  // namespace millrace
