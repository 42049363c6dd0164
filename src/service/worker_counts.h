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
  // In milliseconds, summed over the streams: how long they were open, and of it with a trainer that waited for a
  // batch that was not ready; waiting for earlier batches to leave (SendingTurns) does not count. If trainers wait
  // nearly all the time, more workers would help; if hardly ever, fewer would do.
  std::atomic<uint64_t> open_ms{0};
  std::atomic<uint64_t> awaited_ms{0};
  LoaderTotals loaders;  // of the streams
};

/// Adds the counts to the metrics of this process.
void CollectWorker(const WorkerCounts& counts, MetricsText* text);

}  // namespace millrace
