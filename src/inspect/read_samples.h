#pragma once

#include <stop_token>

#include "absl/functional/function_ref.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "dataset/dataset.h"
#include "dataset/sample_reader.h"

namespace millrace {

/// Gets a sample and the bytes of its span, verified, or the reason why there are none: DataLoss if they are damaged,
/// ResourceExhausted if they do not fit into half of the memory. Both are valid during the call.
using SampleSink = absl::FunctionRef<void(const IndexedSample& sample, const absl::StatusOr<ByteSpan>& bytes)>;

/// Reads the samples at some positions of an order, ahead and in parallel, and hands out each once, in order. A damaged
/// sample does not end it; other errors do, Cancelled soon after a stop is requested. Blocking.
absl::Status ReadSamples(const Dataset& dataset, const SampleOrder& order, Positions positions, MemoryBudget& memory,
                         const std::stop_token& stop, SampleSink each);

}  // namespace millrace
