#pragma once

#include <cstdint>

#include "s3/object.h"

namespace millrace {

/// Requests and bytes of a stretch of time. Plain data.
struct RequestTally {
  uint64_t get = 0;
  uint64_t head = 0;
  uint64_t list = 0;
  uint64_t put = 0;
  uint64_t del = 0;
  uint64_t retries = 0;  // counted in the others too
  uint64_t hedges = 0;   // counted in the others too
  uint64_t bytes_read = 0;

  static RequestTally Of(const RequestCounters& counters) {
    return {.get = counters.get,
            .head = counters.head,
            .list = counters.list,
            .put = counters.put,
            .del = counters.del,
            .retries = counters.retries,
            .hedges = counters.hedges,
            .bytes_read = counters.bytes_read};
  }
  RequestTally operator-(const RequestTally& earlier) const {
    return {.get = get - earlier.get,
            .head = head - earlier.head,
            .list = list - earlier.list,
            .put = put - earlier.put,
            .del = del - earlier.del,
            .retries = retries - earlier.retries,
            .hedges = hedges - earlier.hedges,
            .bytes_read = bytes_read - earlier.bytes_read};
  }
  RequestTally& operator+=(const RequestTally& other) {
    get += other.get;
    head += other.head;
    list += other.list;
    put += other.put;
    del += other.del;
    retries += other.retries;
    hedges += other.hedges;
    bytes_read += other.bytes_read;
    return *this;
  }
};

}  // namespace millrace
