#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

/// Mixes the elements of several parts evenly. It is a bijection between the places 0 .. size()-1 and the elements
/// (part, number within it), as a pure function of the parts' counts and a key.
///
/// For example, if part A has 400 elements and part B has 200, a cycle of 64 places has 42 or 43 elements of A.
///
/// Places are dealt in cycles of a fixed length. Each cycle has, of every part, the share that its count has of the
/// whole, rounded. At the end of a cycle, no part is ahead or behind by more than half an element for each level of a
/// binary tree over the parts. The tree has log2(parts) levels, rounded up. Within a cycle the order is a random one.
/// The elements of a part keep their order from cycle to cycle, but not within one. Immutable and thread-safe.
/// docs/plan.md describes it.
class Interleave {
 public:
  static constexpr uint64_t kMaxSize = uint64_t{1} << 60;

  /// There must be at least one part; the counts sum to at most kMaxSize.
  Interleave(std::span<const uint64_t> counts, uint64_t key);

  struct Element {
    uint32_t part = 0;
    uint64_t number = 0;  // below the part's count
  };

  uint64_t size() const { return tree_[1]; }
  uint64_t count(uint32_t part) const { return tree_[leaves_ + part]; }
  Element At(uint64_t place) const;            // place < size()
  uint64_t PositionOf(Element element) const;  // At(PositionOf(element)) is the element

  /// A cycle has the places [first, first + places).
  struct Cycle {
    uint64_t number = 0;
    uint64_t first = 0;
    uint64_t places = 0;
  };
  uint64_t cycle_length() const { return cycle_; }
  Cycle CycleOf(uint64_t place) const;

  /// The elements of a cycle before they are shuffled: the parts in their order, a run of consecutive elements of each.
  struct Run {
    uint32_t part = 0;
    uint64_t first = 0;  // number of its first element
    uint64_t count = 0;
  };
  void Runs(const Cycle& cycle, std::vector<Run>* out) const;  // none is empty
  /// Replaces each of `offsets` from the cycle's first place by the position in that sequence of the element at that
  /// place.
  void MapInCycle(const Cycle& cycle, std::span<uint64_t> offsets) const;

 private:
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  Range LeftOf(size_t node, Range range) const;
  uint64_t ShuffleKey(const Cycle& cycle) const;
  void RunsBelow(size_t node, Range range, std::vector<Run>* out) const;

  size_t leaves_ = 1;  // a power of two
  uint64_t cycle_ = 0;
  uint64_t key_ = 0;
  std::vector<uint64_t> tree_;  // elements below each node of a binary heap; part p is leaf leaves_ + p
};

}  // namespace millrace
