#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "dataset/dataset.h"
#include "diagnose/bench.h"
#include "net/runtime.h"
#include "pipeline/loader.h"

/// The measurements of `bench.h` share this code.

namespace millrace {

using BenchClock = std::chrono::steady_clock;

/// A stop waits at most this long.
inline constexpr std::chrono::milliseconds kBenchSlice{50};

/// Returns the options of `settings`, for a stream that has no end and whose batches are full.
LoaderOptions EndlessOptions(const BenchSettings& settings);

/// Has a runtime, stores and an open data set.
class BenchSet {
 public:
  static absl::StatusOr<std::unique_ptr<BenchSet>> Open(const std::string& uri, const BenchSettings& settings);

  absl::StatusOr<std::unique_ptr<Loader>> MakeLoader(const LoaderOptions& options);
  const Dataset& dataset() const { return *dataset_; }
  const BenchOpening& opening() const { return opening_; }
  /// Returns the requests to its store, so far.
  RequestCounts requests() const { return RequestCounts::Of(dataset_->store().counters()); }
  int threads() { return runtime_.cpu().threads(); }

 private:
  explicit BenchSet(const BenchSettings& settings);

  Runtime runtime_;
  Stores stores_;
  BenchOpening opening_;
  std::unique_ptr<Dataset> dataset_;
};

/// Returns the next batch of a stream that has no end. Adds its damaged samples to settings.damaged. Cancelled soon
/// after a stop is requested.
absl::StatusOr<Batch> NextBatch(Loader& loader, const BenchSettings& settings);

/// Measures the costs of epochs, one after another. It begins when it is made, which is before the loader is made: a
/// loader begins to fetch at once, and that belongs to its first epoch.
class EpochMeter {
 public:
  /// `set` outlives it.
  explicit EpochMeter(const BenchSet& set) : set_(set) {}

  /// Goes through one epoch from where the loader is to its end: what that cost since the end of the last one, or since
  /// the beginning. `progress` gets the share of it; it may be empty.
  absl::StatusOr<EpochCost> Take(Loader& loader, const BenchSettings& settings,
                                 const std::function<void(double share)>& progress);

 private:
  struct Reading {
    BenchClock::time_point time;
    double cpu_seconds;
    RequestCounts requests;
  };
  Reading Read() const;

  const BenchSet& set_;
  Reading last_ = Read();
};

}  // namespace millrace
