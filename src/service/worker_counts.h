#pragma once

#include <atomic>
#include <cstdint>

#include "pipeline/loader_totals.h"

namespace millrace {

/// What a worker has done so far. Thread-safe.
struct WorkerCounts {
  std::atomic<uint64_t> open{0};  // streams
  std::atomic<uint64_t> opened{0};
  std::atomic<uint64_t> refused{0};
  std::atomic<uint64_t> batches{0};  // that were sent
  std::atomic<uint64_t> rows{0};     // of them
  std::atomic<uint64_t> bytes{0};    // of them
  LoaderTotals loaders;              // of the streams
};

}  // namespace millrace
