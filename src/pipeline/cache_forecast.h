#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/loader.h"

namespace millrace {

struct CacheForecastOptions {
  uint64_t capacity_bytes = 0;  // of the disk
  uint64_t epochs = 5;
  /// Of the world's ranks, those that share the cache; 0: all.
  uint64_t local_ranks = 0;
  /// Units beyond this many are represented by so many of them, drawn at random, in a cache that is smaller likewise.
  uint64_t most_units = 100'000;
};

/// What a cache of a size would bring a loader, worked out from the plan and the index alone: nothing else is read.
/// Units are what a cache keeps or removes as a whole: the extents of a windowed order, the samples of a shuffled one.
struct CacheForecast {
  struct Policies {
    uint64_t ours = 0;     // bytes that come from the cache
    uint64_t lru = 0;      // by removing what was used longest ago, as other caches do
    uint64_t optimum = 0;  // by knowing all that comes
  };
  struct Epoch {
    uint64_t bytes = 0;  // that are read
    Policies hits;
  };
  std::vector<Epoch> epochs;  // from the one at which the loader starts, with an empty cache
  uint64_t data_bytes = 0;    // on the disk, if all of it is kept
  uint64_t units = 0;
  bool sampled = false;

  /// Of all epochs together.
  Epoch Sum() const;
};

/// The options are checked as Loader::Create does, with the same errors; memory need not be free.
absl::StatusOr<CacheForecast> ForecastCache(const Source& source, LoaderOptions options,
                                            const CacheForecastOptions& cache);

}  // namespace millrace
