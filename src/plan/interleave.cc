#include "plan/interleave.h"

#include <algorithm>
#include <bit>

#include "base/rng.h"
#include "plan/permutation.h"

namespace millrace {
namespace {

constexpr uint64_t kCycleDomain = 0x4d522d6379636c65;  // "MR-cycle"
// A cycle is so long that a part with an average count comes several times, and ranks that take every n-th place get a
// bit of everything.
constexpr uint64_t kCyclePlacesPerPart = 4;
constexpr uint64_t kMinCycle = 64;

using Wide = unsigned __int128;

/// Returns how many of the first `begin` elements of a node are its left child's, which has `left` of `all`: the share,
/// rounded.
uint64_t LeftAmong(uint64_t begin, uint64_t left, uint64_t all) {
  const uint64_t half = all / 2;
  if (all <= (uint64_t{1} << 31)) return (begin * left + half) / all;
  return static_cast<uint64_t>((static_cast<Wide>(begin) * left + half) / all);
}

/// Returns the place among the node's `all` elements of element `number` of a child that has `count` of them. It is the
/// first place p with share(p + 1) > number, where share(p) = floor((p x count + phase) / all).
uint64_t PlaceOf(uint64_t number, uint64_t count, uint64_t all, uint64_t phase) {
  const Wide reach = static_cast<Wide>(number + 1) * all - phase;
  return static_cast<uint64_t>((reach + count - 1) / count) - 1;
}

}  // namespace

Interleave::Interleave(std::span<const uint64_t> counts, uint64_t key)
    : leaves_(std::bit_ceil(counts.size())),
      cycle_(std::max(kMinCycle, kCyclePlacesPerPart * counts.size())),
      key_(HashKey(kCycleDomain, {key})),
      tree_(2 * leaves_) {
  std::copy(counts.begin(), counts.end(), tree_.begin() + static_cast<std::ptrdiff_t>(leaves_));
  for (size_t node = leaves_; node-- > 1;) tree_[node] = tree_[2 * node] + tree_[2 * node + 1];
  if (leaves_ == 1) tree_[1] = counts[0];
}

/// Returns which of the left child's elements are among elements `range` of the node. The others are the right child's.
Interleave::Range Interleave::LeftOf(size_t node, Range range) const {
  const uint64_t all = tree_[node];
  const uint64_t left = tree_[2 * node];
  if (left == 0 || left == all) return left == 0 ? Range{0, 0} : range;
  return {LeftAmong(range.begin, left, all), LeftAmong(range.end, left, all)};
}

Interleave::Cycle Interleave::CycleOf(uint64_t place) const {
  const uint64_t number = place / cycle_;
  const uint64_t first = number * cycle_;
  return {number, first, std::min(cycle_, size() - first)};
}

uint64_t Interleave::ShuffleKey(const Cycle& cycle) const {
  return HashKey(key_, {cycle.number});
}

Interleave::Element Interleave::At(uint64_t place) const {
  const Cycle cycle = CycleOf(place);
  uint64_t index = Permutation(cycle.places, ShuffleKey(cycle)).At(place - cycle.first);
  Range range{cycle.first, cycle.first + cycle.places};
  size_t node = 1;
  while (node < leaves_) {
    const Range left = LeftOf(node, range);
    const uint64_t lefts = left.end - left.begin;
    if (index < lefts) {
      range = left;
      node = 2 * node;
    } else {
      index -= lefts;
      range = {range.begin - left.begin, range.end - left.end};
      node = 2 * node + 1;
    }
  }
  return {static_cast<uint32_t>(node - leaves_), range.begin + index};
}

uint64_t Interleave::PositionOf(Element element) const {
  // The walk up to the root finds where the element would be without the shuffle, which shows the cycle.
  uint64_t place = element.number;
  for (size_t node = leaves_ + element.part; node > 1; node /= 2) {
    const uint64_t all = tree_[node / 2];
    const uint64_t half = all / 2;
    const bool right = node % 2 == 1;
    if (tree_[node] < all) place = PlaceOf(place, tree_[node], all, right ? all - 1 - half : half);
  }
  const Cycle cycle = CycleOf(place);
  // The walk then goes down again, to count what comes before it in the cycle's sequence.
  Range range{cycle.first, cycle.first + cycle.places};
  uint64_t index = 0;
  const size_t leaf = leaves_ + element.part;
  for (int level = std::bit_width(leaves_) - 2; level >= 0; --level) {
    const size_t node = leaf >> (level + 1);
    const Range left = LeftOf(node, range);
    if ((leaf >> level) % 2 == 0) {
      range = left;
    } else {
      index += left.end - left.begin;
      range = {range.begin - left.begin, range.end - left.end};
    }
  }
  index += element.number - range.begin;
  return cycle.first + Permutation(cycle.places, ShuffleKey(cycle)).IndexOf(index);
}

void Interleave::RunsBelow(size_t node, Range range, std::vector<Run>* out) const {
  if (range.begin == range.end) return;
  if (node >= leaves_) {
    out->push_back({static_cast<uint32_t>(node - leaves_), range.begin, range.end - range.begin});
    return;
  }
  const Range left = LeftOf(node, range);
  RunsBelow(2 * node, left, out);
  RunsBelow(2 * node + 1, {range.begin - left.begin, range.end - left.end}, out);
}

void Interleave::Runs(const Cycle& cycle, std::vector<Run>* out) const {
  out->clear();
  RunsBelow(1, {cycle.first, cycle.first + cycle.places}, out);
}

void Interleave::MapInCycle(const Cycle& cycle, std::span<uint64_t> offsets) const {
  const Permutation shuffle(cycle.places, ShuffleKey(cycle));
  // A table costs about as much as two lookups without one.
  if (!shuffle.small() || offsets.size() < 4) {
    shuffle.Map(offsets);
    return;
  }
  uint8_t table[Permutation::kSmall];
  shuffle.FillTable(std::span(table, cycle.places));
  for (uint64_t& offset : offsets) offset = table[offset];
}

}  // namespace millrace
