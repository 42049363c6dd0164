#pragma once

#include <cstdint>
#include <optional>

#include "plan/permutation.h"

namespace millrace {

/// The order in which a tool goes through a data set: that of the index, or shuffled by a seed, or only some samples.
/// (Loaders follow a Plan.) Immutable.
class SampleOrder {
 public:
  explicit SampleOrder(uint64_t samples) : samples_(samples), size_(samples) {}
  static SampleOrder Shuffled(uint64_t samples, uint64_t seed);
  /// `count` of the samples, evenly spread, in index order. For inspecting a data set. count <= samples.
  static SampleOrder Spread(uint64_t samples, uint64_t count);

  uint64_t size() const { return size_; }
  /// The sample at a position < size().
  uint64_t At(uint64_t position) const {
    if (size_ < samples_) return SpreadAt(position);
    return permutation_ ? permutation_->At(position) : position;
  }

 private:
  uint64_t SpreadAt(uint64_t position) const;

  uint64_t samples_;
  uint64_t size_;
  std::optional<Permutation> permutation_;
};

}  // namespace millrace
