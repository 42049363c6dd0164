#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace {

/// Numbers below 2^48, in ascending order once all are set. Memory: 4 bytes each where all are below 2^32, else 6.
/// Different ones may be set by several threads at once.
class NumberList {
 public:
  NumberList() = default;
  /// The numbers are below `universe`, which is at most 2^48. They are 0 until they are set.
  NumberList(uint64_t universe, size_t size) : low_(size), high_(universe > (uint64_t{1} << 32) ? size : 0) {}

  /// Returns the bytes for each number.
  static constexpr uint64_t WidthFor(uint64_t universe) {
    return sizeof(uint32_t) + (universe > (uint64_t{1} << 32) ? sizeof(uint16_t) : 0);
  }

  size_t size() const { return low_.size(); }
  uint64_t operator[](size_t place) const {
    return high_.empty() ? low_[place] : uint64_t{high_[place]} << 32 | low_[place];
  }
  void Set(size_t place, uint64_t number) {
    low_[place] = static_cast<uint32_t>(number);
    if (!high_.empty()) high_[place] = static_cast<uint16_t>(number >> 32);
  }
  /// Returns how many are smaller than `number`. O(log size), without branches that could not be predicted.
  size_t CountBelow(uint64_t number) const {
    size_t below = 0;
    for (size_t left = size(); left > 0; left -= (left + 1) / 2) {
      const size_t half = (left + 1) / 2;
      below += (*this)[below + half - 1] < number ? half : 0;
    }
    return below;
  }
  void Prefetch(size_t place) const { __builtin_prefetch(low_.data() + place); }
  uint64_t memory_bytes() const { return low_.size() * sizeof(uint32_t) + high_.size() * sizeof(uint16_t); }

 private:
  std::vector<uint32_t> low_;
  std::vector<uint16_t> high_;
};

}  // namespace millrace
