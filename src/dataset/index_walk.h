#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/long_task.h"
#include "base/status.h"
#include "dataset/dataset.h"

/// Walks an index and keeps examples for reports.

namespace millrace {

/// Calls `each` with samples 0 .. samples-1, in order. Cancelled soon after a stop is requested; DataLoss if the
/// index is damaged. `task` counts samples.
absl::Status WalkIndex(const Index& index, uint64_t samples, const LongTask& task,
                       absl::FunctionRef<void(uint64_t, const IndexedSample&)> each);

/// Represents the place of a sample.
struct SamplePlace {
  uint64_t number = 0;  // in index order
  uint32_t object = 0;  // ordinal
  std::string key;
  uint64_t bytes = 0;  // of its span
};
SamplePlace PlaceOf(uint64_t number, const IndexedSample& sample);

/// This is the number of examples that a report shows of each finding.
inline constexpr size_t kMaxExamples = 5;

/// Samples with one finding: their number, and the first few of them.
struct Finding {
  uint64_t count = 0;
  std::vector<SamplePlace> first;  // at most kMaxExamples

  void Add(uint64_t number, const IndexedSample& sample);
};

}  // namespace millrace
