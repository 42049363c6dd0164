#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "plan/plan.h"

namespace millrace {

/// Says how the samples of an epoch are drawn from the parts of a mix.
enum class Draws {
  kExact,        // so many of each part as its weight says, and of a part each sample as often as any other
  kReplacement,  // so many of each part; each draw of a sample is independent
  kIndependent,  // each time a part by its weight, and a sample of it
};

absl::StatusOr<Draws> ParseDraws(std::string_view text);  // "exact", "replacement", "independent"
std::string_view DrawsName(Draws draws);

/// Mixes several parts (data sets, classes of one, groups of equal weight) whose samples make one epoch. The items of a
/// mix are the samples of its parts, numbered 0 .. items()-1, those of a part after those of the one before.
struct Mix {
  static constexpr size_t kMaxParts = size_t{1} << 16;
  static constexpr size_t kMaxStages = 1024;
  static constexpr size_t kMaxWeights = size_t{1} << 20;  // of all stages together
  static constexpr uint64_t kMaxWeight = uint64_t{1} << 44;

  struct Part {
    uint64_t items = 0;
    OrderPolicy policy;
  };
  /// Holds the weights from a global sample count on (epochs x length + position). Those of a stage may have any sum.
  struct Stage {
    uint64_t from = 0;
    std::vector<uint64_t> weights;  // one for each part
  };

  std::vector<Part> parts;
  uint64_t length = 0;        // samples of an epoch
  std::vector<Stage> stages;  // the first one from 0
  Draws draws = Draws::kExact;
  /// This applies to kExact. If it is true, every epoch begins new passes over the parts, so that in each epoch every
  /// sample of a part comes equally often, give or take one. Otherwise passes continue from epoch to epoch: no sample
  /// comes again before all others of its part.
  bool fresh_passes = false;

  /// Returns InvalidArgument with the reason: no parts, a part without items that has a weight, weights that are all 0,
  /// stages out of order, limits. The methods below, and Plan, presuppose that this is ok.
  absl::Status Check() const;

  uint64_t items() const;
  /// Returns the stage at a global sample count; counts beyond 2^64 belong to the last one.
  const Stage& StageAt(unsigned __int128 count) const;
  /// Returns the number of samples of each part in an epoch: its share of each of the epoch's phases, rounded down or
  /// up alternately (apportion.h). Epochs thereby make up for each other. kIndependent: the average, rounded.
  std::vector<uint64_t> CountsOf(uint64_t seed, uint64_t epoch) const;
  /// Returns the shares of the parts by their weights, which sum to 1; CountsOf differs by less than one sample for
  /// each phase.
  std::vector<double> SharesOf(uint64_t epoch) const;
};

/// Returns weights as a Mix has them: in the same proportions up to 2^-40 of the largest one, on every machine. Returns
/// InvalidArgument for negative, infinite or only zero weights.
absl::StatusOr<std::vector<uint64_t>> MixWeights(std::span<const double> weights);

}  // namespace millrace
