#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/subset.h"

namespace millrace {

/// What a loader feeds: one or several subsets of data sets. Its items are their samples, numbered 0 .. size()-1, those
/// of one part after those of the other. Immutable, cheap to copy; the data sets must outlive it.
class Source {
 public:
  Source(const Dataset& dataset) : Source(std::vector<Subset>{dataset}) {}   // NOLINT(google-explicit-constructor)
  Source(Subset subset) : Source(std::vector<Subset>{std::move(subset)}) {}  // NOLINT(google-explicit-constructor)
  /// At least one part.
  explicit Source(std::vector<Subset> parts);

  const std::vector<Subset>& parts() const { return parts_; }
  uint64_t size() const { return first_.back(); }
  /// The first item of a part.
  uint64_t FirstOf(size_t part) const { return first_[part]; }

  struct Place {
    size_t part = 0;
    uint64_t rank = 0;  // in the part
  };
  Place Find(uint64_t item) const;         // item < size()
  uint64_t SampleOf(uint64_t item) const;  // as its index numbers it
  absl::Status Lookup(uint64_t item, IndexedSample* out) const;

  uint64_t total_bytes() const;
  uint64_t max_span_bytes() const;  // of all data sets, so no less than that of the items
  double mean_span_bytes() const;
  /// Of the data set, or of those that are mixed, with " + " between them.
  std::string uri() const;

 private:
  std::vector<Subset> parts_;
  std::vector<uint64_t> first_;  // and one more
};

}  // namespace millrace
