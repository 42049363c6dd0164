#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/crypto.h"
#include "base/memory_budget.h"
#include "dataset/index_walk.h"

namespace millrace {

/// Names two samples that have the same key.
struct DuplicateKey {
  SamplePlace first;
  SamplePlace again;
};

struct DuplicateKeys {
  uint64_t count = 0;                  // samples with the key of an earlier one
  uint64_t compared = 0;               // as many of the first samples of the index as memory allows
  std::vector<DuplicateKey> examples;  // the first of them, at most kMaxExamples
};

/// Looks for samples with equal keys, wherever they lie: sorts hashes of the keys, and compares the keys whose hashes
/// are equal. Memory: 8 bytes a sample, out of the budget, and at most 1 GiB (134 million samples); if there is less
/// memory, it compares fewer samples. Walks the index once, and a second time if there are equal hashes. Errors are
/// those of WalkIndex.
absl::StatusOr<DuplicateKeys> FindDuplicateKeys(
    const Index& index, MemoryBudget& memory, const LongTask& task,
    absl::FunctionRef<uint64_t(std::string_view)> hash = [](std::string_view key) { return Xxh3(AsBytes(key)); });

}  // namespace millrace
