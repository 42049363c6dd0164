#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>

#include "base/status.h"
#include "net/runtime.h"
#include "store/stores.h"

namespace millrace {

/// Describes a data set of synthetic photographs in tar shards, or in an object each, for benchmarks.
struct SyntheticShards {
  uint64_t samples = 1000;
  uint64_t image_bytes = 115'000;             // of each, give or take 10 %; at most 150,000
  uint64_t shard_bytes = uint64_t{64} << 20;  // 0: each image is an object of its own
  uint64_t seed = 1;
  uint64_t classes = 10;
};

struct SyntheticReport {
  uint64_t shards = 0;  // or objects
  uint64_t bytes = 0;
};

/// Writes shard-000000.tar and so on below `place`: members NNNNNNNN.cls and NNNNNNNN.jpg. The same settings give the
/// same bytes. A shard ends with the sample that makes it as large as `shard_bytes`. Images without shards are
/// class-NNN/NNNNNNNN.jpg; more digits if there are more. Memory: some tens of images, and what the store's writer
/// holds. `progress` gets the number of images that are written, from any thread, one call at a time. Blocking;
/// Cancelled soon after a stop is requested; else errors of the store, and InvalidArgument for a size that no image
/// has.
absl::StatusOr<SyntheticReport> WriteSyntheticShards(Runtime& runtime, const Location& place,
                                                     const SyntheticShards& settings,
                                                     const std::function<void(uint64_t images)>& progress,
                                                     const std::stop_token& stop);

}  // namespace millrace
