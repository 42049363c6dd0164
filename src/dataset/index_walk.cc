#include "dataset/index_walk.h"

#include <algorithm>

namespace millrace {

absl::Status WalkIndex(const Index& index, uint64_t samples, const LongTask& task,
                       absl::FunctionRef<void(uint64_t, const IndexedSample&)> each) {
  constexpr uint64_t kStep = 1 << 14;
  for (uint64_t first = 0; first < samples; first += kStep) {
    if (task.stop.stop_requested()) return absl::CancelledError("interrupted");
    if (task.progress) task.progress(first, samples);
    RETURN_IF_ERROR(index.Scan(first, std::min(samples, first + kStep), each));
  }
  return absl::OkStatus();
}

SamplePlace PlaceOf(uint64_t number, const IndexedSample& sample) {
  return {.number = number, .object = sample.object, .key = sample.key, .bytes = sample.span.length};
}

void Finding::Add(uint64_t number, const IndexedSample& sample) {
  if (count++ < kMaxExamples) first.push_back(PlaceOf(number, sample));
}

}  // namespace millrace
