#pragma once

#include <atomic>
#include <utility>
#include <vector>

#include "s3/object.h"

namespace millrace {

/// Collects the statuses of `count` calls, at least one, and passes them on with the last. Thread-safe.
class StatusGatherer {
 public:
  StatusGatherer(size_t count, DeleteCallback done) : statuses_(count), missing_(count), done_(std::move(done)) {}

  /// Call it once for each `place`.
  void Set(size_t place, absl::Status status) {
    statuses_[place] = std::move(status);
    if (missing_.fetch_sub(1, std::memory_order_acq_rel) == 1) done_(std::move(statuses_));
  }

 private:
  std::vector<absl::Status> statuses_;
  std::atomic<size_t> missing_;
  DeleteCallback done_;
};

}  // namespace millrace
