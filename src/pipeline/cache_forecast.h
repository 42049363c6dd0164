#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/loader.h"

namespace millrace {

struct CacheForecastOptions {
  uint64_t capacity_bytes = 0;  // of the disk
  uint64_t epochs = 5;
  /// The number of the world's ranks that share the cache; 0: all.
  uint64_t local_ranks = 0;
  /// This is the maximal number of units that are simulated. If there are more, this many, drawn at random, represent
  /// them, in a cache that is smaller in proportion.
  uint64_t most_units = 100'000;
};

/// Forecasts how many bytes a cache of a size would serve to a loader. It is computed from the plan and the index
/// alone: nothing else is read. A cache keeps or removes each unit as a whole. Units are the extents of a windowed
/// order, or the samples of a shuffled one.
struct CacheForecast {
  struct Policies {
    uint64_t ours = 0;     // bytes that come from the cache
    uint64_t lru = 0;      // by removing the least recently used, as other caches do
    uint64_t optimum = 0;  // by knowing all reads that come
  };
  struct Epoch {
    uint64_t bytes = 0;  // that are read
    Policies hits;
  };
  std::vector<Epoch> epochs;  // from the one at which the loader starts, with an empty cache
  uint64_t data_bytes = 0;    // on the disk, if all of it is kept
  uint64_t units = 0;
  bool sampled = false;

  /// Returns the sum of all epochs.
  Epoch Sum() const;
};

/// Forecasts the first epochs. The options are checked as Loader::Create does, with the same errors; memory
/// need not be free.
absl::StatusOr<CacheForecast> ForecastCache(const Source& source, LoaderOptions options,
                                            const CacheForecastOptions& cache);

}  // namespace millrace
