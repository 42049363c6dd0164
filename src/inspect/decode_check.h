#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataset/index_walk.h"
#include "net/runtime.h"

namespace millrace {

struct BadSample {
  SamplePlace place;
  std::string why;
};

struct DecodeReport {
  uint64_t samples = 0;          // samples that were read
  uint64_t images = 0;           // images that were decoded
  uint64_t odd = 0;              // of them: the codec warns, and Pillow and Millrace show them all the same
  uint64_t failed = 0;           // samples that are damaged, or of which a value or image cannot be decoded
  uint64_t too_large = 0;        // samples larger than a quarter of the runtime's memory: not checked
  std::vector<BadSample> first;  // of these, in index order, at most kMaxExamples
};

/// Reads `samples` samples, evenly spread over the data set, and decodes their fields, images at a small size (which
/// finds damage anywhere in the file). Texts, JSON and arrays are judged as a Loader with such fields does: those whose
/// format says what they are, and files called .txt, .text, .json and .npy. It runs on all CPUs, with up to half of the
/// runtime's memory. `samples` is at most the size of the data set. A bad sample is not an error; a failure of the
/// store or the network is. Cancelled soon after a stop is requested.
absl::StatusOr<DecodeReport> CheckDecoding(Runtime& runtime, const Dataset& dataset, uint64_t samples,
                                           const LongTask& task);

}  // namespace millrace
