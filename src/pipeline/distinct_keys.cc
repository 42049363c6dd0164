#include "pipeline/distinct_keys.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "base/crypto.h"

namespace millrace {

void DistinctCount::Add(uint64_t hash) {
  if (smallest_.size() < kHashes) {
    smallest_.insert(hash);
  } else if (hash < *smallest_.rbegin() && smallest_.insert(hash).second) {
    smallest_.erase(std::prev(smallest_.end()));
  }
}

uint64_t DistinctCount::Estimate() const {
  if (smallest_.size() < kHashes) return smallest_.size();
  const double share = std::ldexp(static_cast<double>(*smallest_.rbegin()), -64);  // of all hashes, below the largest
  return static_cast<uint64_t>(static_cast<double>(kHashes - 1) / share);
}

absl::Status CheckKeysDiffer(const Index& index, const std::string& uri) {
  DistinctCount keys;
  RETURN_IF_ERROR(index.Scan(0, index.size(),
                             [&keys](uint64_t, const IndexedSample& sample) { keys.Add(Xxh3(AsBytes(sample.key))); }));
  const uint64_t different = keys.Estimate();
  if (different >= index.size() / 2) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "{}: only about {} of {} samples have keys of their own. A split puts samples of one key into one part, so parts "
      "would not be random, and would not have the sizes asked for. If keys are groups that belong together, say so: "
      "--split-groups, or in Python split(..., groups=True)",
      uri, different, index.size()));
}

}  // namespace millrace
