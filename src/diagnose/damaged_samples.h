#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "pipeline/batch_source.h"

namespace millrace {

/// Counts the damaged samples that measurements have met, whose places other samples took. Each counts once, however
/// often its turn comes.
class DamagedSamples {
 public:
  /// It remembers this many names; further samples are not counted.
  static constexpr size_t kMost = 100'000;

  void Add(const std::vector<QuarantinedSample>& samples) {
    for (const QuarantinedSample& sample : samples) {
      if (names_.size() >= kMost || !names_.insert(sample.uri).second) continue;
      if (!first_) first_ = sample;
    }
  }

  size_t count() const { return names_.size(); }
  /// Returns the first one that came; absent if there is none.
  const std::optional<QuarantinedSample>& first() const { return first_; }

 private:
  std::set<std::string> names_;
  std::optional<QuarantinedSample> first_;
};

}  // namespace millrace
