#include "plan/split.h"

#include <cmath>

#include "base/bytes.h"
#include "base/crypto.h"
#include "fmt/format.h"

namespace millrace {

uint64_t KeyRange::Hash(std::string_view key, uint64_t seed) {
  return Xxh3(AsBytes(key), seed);
}

bool KeyRange::Takes(std::string_view key) const {
  const uint64_t hash = Hash(key, seed);
  return first <= hash && hash <= last;
}

absl::StatusOr<std::vector<KeyRange>> SplitKeys(std::span<const double> fractions, uint64_t seed) {
  constexpr double kRounding = 1e-9;
  std::vector<KeyRange> parts;
  double sum = 0;
  uint64_t first = 0;
  for (const double fraction : fractions) {
    sum += fraction;
    if (!(fraction > 0) || !(sum <= 1 + kRounding)) {
      return absl::InvalidArgumentError(
          fmt::format("a split takes fractions above 0 that sum to at most 1; with {} they sum to {}", fraction, sum));
    }
    const bool to_the_end = sum >= 1 - kRounding;
    const uint64_t end = to_the_end ? 0 : static_cast<uint64_t>(std::ldexp(sum, 64));
    if ((first == 0 && !parts.empty()) || (!to_the_end && end <= first)) {
      return absl::InvalidArgumentError(fmt::format("the fraction {} of a split is too small", fraction));
    }
    parts.push_back({seed, first, end - 1});
    first = end;
  }
  return parts;
}

}  // namespace millrace
