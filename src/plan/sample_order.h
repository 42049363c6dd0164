#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "plan/permutation.h"
#include "plan/selection.h"

namespace millrace {

/// Gives the order in which a tool reads a data set: that of the index, or shuffled by a seed, or only some samples.
/// (Loaders follow a Plan.) Immutable.
class SampleOrder {
 public:
  explicit SampleOrder(uint64_t samples) : samples_(samples), size_(samples) {}
  static SampleOrder Shuffled(uint64_t samples, uint64_t seed);
  /// Returns `count` of the samples, evenly spread, in index order. It is for inspecting a data set. count <= samples.
  static SampleOrder Spread(uint64_t samples, uint64_t count);
  /// Returns the order of the members of `chosen` alone; all = the order of as many samples as are chosen.
  static SampleOrder Among(std::shared_ptr<const Selection> chosen, SampleOrder all) {
    all.chosen_ = std::move(chosen);
    return all;
  }

  uint64_t size() const { return size_; }
  /// Returns the sample at a position < size().
  uint64_t At(uint64_t position) const {
    const uint64_t rank = RankAt(position);
    return chosen_ ? chosen_->At(rank) : rank;
  }

 private:
  uint64_t RankAt(uint64_t position) const {
    if (size_ < samples_) return SpreadAt(position);
    return permutation_ ? permutation_->At(position) : position;
  }
  uint64_t SpreadAt(uint64_t position) const;

  uint64_t samples_;
  uint64_t size_;
  std::optional<Permutation> permutation_;
  std::shared_ptr<const Selection> chosen_;  // null: all
};

}  // namespace millrace
