#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "base/status.h"
#include "dataset/dataset.h"
#include "shard/field_value.h"

namespace millrace {

/// Represents a sample by the values of its fields.
struct SampleValues {
  struct Field {
    std::string name;
    FieldType type = FieldType::kBytes;
    std::string value;
  };
  std::string key;
  std::vector<Field> fields;  // in bytewise order of names
};

/// Reads one sample of the index, by itself: for looking at samples and for random access. Loaders read in an order
/// that they know ahead, and are many times faster. The sample is verified by the checksum in the index. Blocking.
///
/// Errors:
/// - InvalidArgument: no such sample;
/// - DataLoss: damaged, or values that cannot be parsed;
/// - FailedPrecondition: the object was replaced;
/// - Cancelled soon after a stop is requested;
/// - ResourceExhausted if `memory` cannot hold it;
/// - those of the store.
absl::StatusOr<SampleValues> ReadSample(const Dataset& dataset, uint64_t sample, MemoryBudget& memory,
                                        const std::stop_token& stop = {});

/// Reads several samples, in this order, with many requests in flight: for callers that choose batches themselves. The
/// bytes in flight are reserved in `memory`. Errors are those of ReadSample and of ObjectReader; the first one ends it.
absl::StatusOr<std::vector<SampleValues>> ReadSamples(const Dataset& dataset, std::span<const uint64_t> samples,
                                                      MemoryBudget& memory, const std::stop_token& stop = {});

}  // namespace millrace
