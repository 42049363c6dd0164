#pragma once

#include <cstdint>
#include <memory>

#include "base/long_task.h"
#include "pipeline/loader.h"

namespace millrace {

struct WarmReport {
  CacheReport cache;          // hit_bytes were there already
  KeepCounts kept;            // of this process's cache
  uint64_t sample_bytes = 0;  // of all samples
};

/// Reads all samples of a source through options.cache, so that a loader with these options finds them there. If the
/// data are larger than the cache, it reads the samples that the loader needs first. Blocking. Errors are those of the
/// stores, and those of Loader::Create for the options; Cancelled after a stop. `task` counts the bytes of samples.
absl::StatusOr<WarmReport> WarmCache(const Source& source, LoaderOptions options, const LongTask& task);

}  // namespace millrace
