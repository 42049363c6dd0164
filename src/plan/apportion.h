#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

/// Deals the places of stretches (the epochs of a mix, mostly) to parts by weight, in whole numbers. In each stretch,
/// or turn, a part gets its share of the length, rounded down or up. The direction of rounding changes from turn to
/// turn, so that nothing adds up. Over any n turns in a row of one length, a part's total is off n shares by at most 1
/// + log2(n) / 3. A part with share s < 1 gets a place within any 2 / s turns (rounded up). The expected count, over
/// keys, is the share.
///
/// This is systematic rounding. Parts are on a line in an order of the key's, one after another, each as long as its
/// share. A part gets a place for each point of a grid of width 1 that is in it. From turn to turn the grid moves by
/// the golden ratio, which of all steps fills the circle most evenly. Integer arithmetic; O(parts) for a turn, and
/// O(parts x log n) for n of them.
class Apportionment {
 public:
  using Total = unsigned __int128;

  /// The weights, which the caller keeps, sum to less than 2^61 and above 0.
  Apportionment(std::span<const uint64_t> weights, uint64_t key);

  /// Returns the count of each part in a turn of this length: they sum to `length`, which is at most 2^60.
  std::vector<uint64_t> CountsOf(uint64_t length, uint64_t turn) const;
  /// Adds to each part's total what it has in `turns` turns from `first` on, all of this length.
  void AddTotals(uint64_t length, uint64_t first, uint64_t turns, std::span<Total> totals) const;

 private:
  struct Edge {
    uint64_t whole = 0;
    uint64_t fraction = 0;  // of 2^64
  };
  Edge EdgeAt(uint64_t length, uint64_t weights_before) const;
  uint64_t GridAt(uint64_t turn) const;

  std::span<const uint64_t> weights_;
  uint64_t sum_ = 0;
  uint64_t grid_ = 0;            // of turn 0
  std::vector<uint32_t> order_;  // of the parts on the line
};

}  // namespace millrace
