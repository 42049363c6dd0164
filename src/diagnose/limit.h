#pragma once

#include <string>

#include "diagnose/bench.h"

/// Names the limit of a measured pipeline, in words. Pure.

namespace millrace {

/// Names the resource of which more would make the pipeline faster.
enum class LimitedBy : uint8_t {
  kCpu,         // CPUs that decode
  kThreads,     // threads that decode: there are CPUs without work
  kLatency,     // the store's time to the first byte, or connections
  kThroughput,  // the store or the network between
  kThrottling,  // the store asks for less
  kOutage,      // the store was away
  kMemory,      // the memory budget for what is fetched ahead
  kNothing,     // batches were there before they were asked for
};

struct PipelineLimit {
  LimitedBy by = LimitedBy::kNothing;
  double share = 0;      // of the time in which the consumer waited: what its largest cause took
  std::string sentence;  // one, for a reader who knows nothing else
};

/// `threads` decoded, on a machine with `cpus`.
PipelineLimit FindLimit(const BenchSummary& measured, int threads, int cpus);

}  // namespace millrace
