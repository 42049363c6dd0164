#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

/// Mixes the elements of several parts evenly: a bijection between the places 0 .. size()-1 and the elements (part,
/// number within it), as a pure function of the parts' counts and a key. Places are dealt in cycles of a fixed length;
/// each cycle has, of every part, the share that its count has of the whole, rounded so that at the end of a cycle no
/// part is ahead or behind by more than half an element for each level of a binary tree over the parts, which has
/// log2(parts) of them, rounded up; within a cycle the order is a random one. The elements of a part keep their order
/// from cycle to cycle, but not within one. Immutable and thread-safe. docs/plan.md describes it.
class Interleave {
 public:
  static constexpr uint64_t kMaxSize = uint64_t{1} << 60;

  /// At least one part; the counts sum to at most kMaxSize.
  Interleave(std::span<const uint64_t> counts, uint64_t key);

  struct Element {
    uint32_t part = 0;
    uint64_t number = 0;  // below the part's count
  };

  uint64_t size() const { return tree_[1]; }
  uint64_t count(uint32_t part) const { return tree_[leaves_ + part]; }
  Element At(uint64_t place) const;            // place < size()
  uint64_t PositionOf(Element element) const;  // At(PositionOf(element)) is the element

  /// Of a cycle: places [first, first + places).
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
  /// Where in that sequence the elements at the cycle's places are, for each of `offsets` from its first place.
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
