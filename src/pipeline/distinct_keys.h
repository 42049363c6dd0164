#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "base/status.h"
#include "dataset/index.h"

namespace millrace {

/// Estimates how many different values there are among many, from the smallest of their hashes (k minimum values):
/// exact up to 4,096, within about 5 % beyond. Memory: 4,096 hashes. Not thread-safe.
class DistinctCount {
 public:
  void Add(uint64_t hash);
  uint64_t Estimate() const;

 private:
  static constexpr size_t kHashes = 4096;
  std::set<uint64_t> smallest_;
};

/// Returns InvalidArgument if fewer than half of the samples have a key of their own: parts by key would be neither
/// random nor of the sizes asked for. `uri` is for the message. Walks the index once.
absl::Status CheckKeysDiffer(const Index& index, const std::string& uri);

}  // namespace millrace
