#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string_view>

#include "base/memory_budget.h"
#include "cache/cached_store.h"
#include "metrics/metrics_text.h"
#include "pipeline/loader_totals.h"
#include "service/worker_counts.h"
#include "store/stores.h"

/// What the parts of Millrace have to tell, as metrics (docs/metrics.md lists them).

namespace millrace {

/// The requests of all stores that a Stores opens. Thread-safe.
class StoreCounts {
 public:
  /// For the constructor of the Stores, which must outlive calls of Collect: its stores are counted, and else left as
  /// they are.
  Stores::Wrap Watch();
  /// Counts another store, which outlives calls of Collect.
  void Add(const ObjectStore& store);

  void Collect(MetricsText* text) const;

 private:
  mutable std::mutex mutex_;
  std::set<const RequestCounters*> counters_;  // the buckets of one client have the same ones
};

/// Version, CPU time, memory, open files and start of this process.
void CollectProcess(MetricsText* text);
void CollectMemory(const MemoryBudget& budget, MetricsText* text);
void CollectLoaders(const LoaderTotals& totals, MetricsText* text);
/// Bytes that came from a cache and from the store; `data` says of what.
void CollectCache(const CacheReport& cache, std::string_view data, MetricsText* text);
void CollectWorker(const WorkerCounts& counts, MetricsText* text);

}  // namespace millrace
