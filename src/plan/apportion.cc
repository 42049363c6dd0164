#include "plan/apportion.h"

#include <numeric>
#include <utility>

#include "base/rng.h"

namespace millrace {
namespace {

constexpr uint64_t kGridDomain = 0x4d522d6170706f72;   // "MR-appor"
constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;  // of 2^64

using Wide = unsigned __int128;

/// Returns the sum of floor((step x i + start) / modulus) over all i < n, modulo 2^128, where step x n + modulus <
/// 2^128. It counts the lattice points below a line; as Euclid's algorithm does, it swaps axes until nothing is left.
Wide FloorSum(Wide n, Wide modulus, Wide step, Wide start) {
  Wide sum = 0;
  while (true) {
    sum += n * (n - 1) / 2 * (step / modulus) + n * (start / modulus);
    step %= modulus;
    start %= modulus;
    const Wide reach = step * n + start;
    if (reach < modulus) return sum;
    n = reach / modulus;
    start = reach % modulus;
    std::swap(step, modulus);
  }
}

}  // namespace

Apportionment::Apportionment(std::span<const uint64_t> weights, uint64_t key)
    : weights_(weights), sum_(std::accumulate(weights.begin(), weights.end(), uint64_t{0})), order_(weights.size()) {
  Rng rng(HashKey(kGridDomain, {key}));
  grid_ = rng.Next();
  std::iota(order_.begin(), order_.end(), uint32_t{0});
  for (size_t left = order_.size(); left > 1; --left) std::swap(order_[left - 1], order_[rng.Below(left)]);
}

Apportionment::Edge Apportionment::EdgeAt(uint64_t length, uint64_t weights_before) const {
  const Wide product = static_cast<Wide>(length) * weights_before;
  const Wide rest = product % sum_;
  return {static_cast<uint64_t>(product / sum_), static_cast<uint64_t>((rest << 64) / sum_)};
}

uint64_t Apportionment::GridAt(uint64_t turn) const {
  return grid_ + turn * kGoldenRatio;  // modulo 1
}

std::vector<uint64_t> Apportionment::CountsOf(uint64_t length, uint64_t turn) const {
  std::vector<uint64_t> counts(weights_.size(), 0);
  const uint64_t grid = GridAt(turn);
  uint64_t weight = 0;
  uint64_t before = 0;  // grid points
  for (const uint32_t part : order_) {
    weight += weights_[part];
    const Edge edge = EdgeAt(length, weight);
    const uint64_t points = edge.whole + (edge.fraction > ~grid ? 1 : 0);
    counts[part] = points - before;
    before = points;
  }
  return counts;
}

void Apportionment::AddTotals(uint64_t length, uint64_t first, uint64_t turns, std::span<Total> totals) const {
  const Wide circle = Wide{1} << 64;
  const uint64_t grid = GridAt(first);
  // CountsOf's points are summed up. The grid's whole turns are in both sums, and cancel.
  Wide before = FloorSum(turns, circle, kGoldenRatio, grid);
  uint64_t weight = 0;
  for (const uint32_t part : order_) {
    if (weights_[part] == 0) continue;
    weight += weights_[part];
    const Edge edge = EdgeAt(length, weight);
    const Wide points = static_cast<Wide>(turns) * edge.whole +
                        FloorSum(turns, circle, kGoldenRatio, static_cast<Wide>(grid) + edge.fraction);
    totals[part] += points - before;
    before = points;
  }
}

}  // namespace millrace
