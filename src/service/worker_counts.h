#pragma once

#include <atomic>
#include <cstdint>

#include "pipeline/loader_totals.h"

namespace millrace {

/// Counts what a worker has done so far. Thread-safe.
struct WorkerCounts {
  std::atomic<uint64_t> open{0};  // streams
  std::atomic<uint64_t> opened{0};
  std::atomic<uint64_t> refused{0};
  std::atomic<uint64_t> batches{0};  // that were sent
  std::atomic<uint64_t> rows{0};     // of them
  std::atomic<uint64_t> bytes{0};    // of them
  // Both are milliseconds, summed over the streams. The first counts how long they were open. The second counts the
  // part of that time in which a trainer waited for a batch that was not ready; waiting for earlier batches to leave
  // (SendingTurns) does not count. If trainers wait nearly all the time, more workers would help; if they hardly ever
  // wait, fewer would do.
  std::atomic<uint64_t> open_ms{0};
  std::atomic<uint64_t> awaited_ms{0};
  LoaderTotals loaders;  // of the streams
};

/// Adds the counts to the metrics of this process.
void CollectWorker(const WorkerCounts& counts, MetricsText* text);

}  // namespace millrace
