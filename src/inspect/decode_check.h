#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "inspect/index_walk.h"
#include "net/runtime.h"

namespace millrace {

struct BadSample {
  SamplePlace place;
  std::string why;
};

struct DecodeReport {
  uint64_t samples = 0;          // that were read
  uint64_t images = 0;           // that were decoded
  uint64_t failed = 0;           // samples that are damaged, or of which a value or image cannot be decoded
  uint64_t too_large = 0;        // samples that a quarter of the runtime's memory does not hold: not looked at
  std::vector<BadSample> first;  // of these, in index order, at most kMaxExamples
};

/// Reads so many samples, evenly spread over the data set, and decodes what is in them, images at a small size (which
/// finds damage wherever it is in the file). On all CPUs, with up to half of the runtime's memory. `samples` is at most
/// the size of the data set. A bad sample is no error; what is wrong with the store or the network is. Cancelled soon
/// after a stop is requested.
absl::StatusOr<DecodeReport> CheckDecoding(Runtime& runtime, const Dataset& dataset, uint64_t samples,
                                           const ProgressFn& progress, const std::stop_token& stop);

}  // namespace millrace
