#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millrace {

/// The samples of a split are those the hash of whose key is in a range. The hash is XXH3 (64 bits) of the key's bytes
/// with the seed. The part of a sample therefore depends on its key alone: not on the machine, the store, or which
/// other samples there are.
struct KeyRange {
  uint64_t seed = 0;
  uint64_t first = 0;          // smallest hash
  uint64_t last = UINT64_MAX;  // largest one

  bool Takes(std::string_view key) const;
  static uint64_t Hash(std::string_view key, uint64_t seed);
};

/// Returns parts that take these fractions of all keys, one after another from hash 0: [0, f0), [f0, f0 + f1), ... of
/// 2^64. Returns InvalidArgument unless each fraction is above 0 and their sum at most 1 (up to rounding, in 10^-9). If
/// it is less, the keys beyond belong to no part.
absl::StatusOr<std::vector<KeyRange>> SplitKeys(std::span<const double> fractions, uint64_t seed);

}  // namespace millrace
