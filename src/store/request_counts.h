#pragma once

#include <cstdint>
#include <mutex>
#include <set>

#include "net/metrics_text.h"
#include "s3/object.h"
#include "store/stores.h"

namespace millrace {

/// Counts requests and bytes of a stretch of time: a copy of RequestCounters, to subtract and to add. Plain data.
struct RequestCounts {
  uint64_t get = 0;
  uint64_t head = 0;
  uint64_t list = 0;
  uint64_t put = 0;
  uint64_t del = 0;
  uint64_t retries = 0;  // counted in the others too
  uint64_t hedges = 0;   // counted in the others too
  uint64_t bytes_read = 0;

  static RequestCounts Of(const RequestCounters& counters);
  RequestCounts operator-(const RequestCounts& earlier) const;
  RequestCounts& operator+=(const RequestCounts& other);
};

/// Sums the requests of several stores. Stores of one client have the same counters, which count once. Thread-safe.
class StoreCounts {
 public:
  /// Returns the `wrap` for the constructor of the Stores, which must outlive calls of Sum and Collect. Its stores are
  /// counted, and otherwise left as they are.
  Stores::Wrap Watch();
  /// Counts another store, which outlives calls of Sum and Collect.
  void Add(const ObjectStore& store);

  RequestCounts Sum() const;
  void Collect(MetricsText* text) const;

 private:
  mutable std::mutex mutex_;
  std::set<const RequestCounters*> counters_;
};

}  // namespace millrace
