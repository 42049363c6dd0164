#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/object_store.h"

/// Measures how fast a store lists and reads, with the requests that a plan or a download would make.

namespace millrace {

/// Is a range of an object that may be read.
struct ReadPlace {
  std::string key;  // the store's
  ByteRange range;
};

struct ReadRate {
  uint64_t reads = 0;
  uint64_t bytes = 0;
  double seconds = 0;

  double bytes_per_second() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
  double reads_per_second() const { return seconds > 0 ? static_cast<double>(reads) / seconds : 0; }
};

/// Reads `places`, again and again from the first, with `in_flight` reads at a time, for about `seconds` or until
/// `max_reads` are done; 0: no such limit. It waits for reads in flight, so that all counted bytes were read within the
/// reported time. At least one place. Blocking. The first error ends it; Cancelled after a stop. Memory: `in_flight`
/// buffers of the largest range.
absl::StatusOr<ReadRate> MeasureReads(ObjectStore& store, const std::vector<ReadPlace>& places, int in_flight,
                                      double seconds, uint64_t max_reads, const std::stop_token& stop);

/// Returns the median of the times, in seconds, that reads of one byte take, one after the other; the first, which
/// connects, is not counted. Errors as above.
absl::StatusOr<double> MeasureFirstByte(ObjectStore& store, const std::vector<ReadPlace>& places,
                                        const std::stop_token& stop);

struct ListRate {
  uint64_t objects = 0;
  uint64_t pages = 0;
  double seconds = 0;
  bool complete = false;  // it was all that there is

  double seconds_per_page() const { return pages > 0 ? seconds / static_cast<double>(pages) : 0; }
};

/// Lists what is below `prefix`, page by page, for two seconds at most. Errors as above.
absl::StatusOr<ListRate> MeasureListing(ObjectStore& store, const std::string& prefix, const std::stop_token& stop);

}  // namespace millrace
