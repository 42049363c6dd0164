#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>

#include "net/runtime.h"
#include "service/allowed_places.h"
#include "service/kept_batches.h"
#include "service/releases.h"
#include "service/stream_spec.h"
#include "service/worker.h"
#include "store/stores.h"

namespace millrace {

/// Holds the data sets that a worker has open, for all its sessions. Thread-safe.
class OpenDatasets {
 public:
  OpenDatasets(Runtime& runtime, Stores& stores, AllowedPlaces allowed, const WorkerOptions& options)
      : runtime_(runtime),
        allowed_(std::move(allowed)),
        stores_(stores, allowed_.folders()),
        cache_(options.cache),
        functions_(options.functions),
        kept_(options.kept_bytes) {}

  /// Returns the data set that the trainer sees; may take long, and index it. A stream that is closed meanwhile does
  /// not end that: the next one of this data set finds it open. Returns PermissionDenied (not below an allowed place),
  /// Cancelled (by `stop`, while another stream opens it), FailedPrecondition (the worker finds another index at this
  /// URI), and the errors of Dataset::Open.
  absl::StatusOr<std::shared_ptr<const Dataset>> Open(const StreamSpec::Part& part, const std::stop_token& stop);

  /// Openings end soon, with Cancelled: the worker ends.
  void Stop() { stop_.request_stop(); }
  std::stop_token stop_token() const { return stop_.get_token(); }

  Runtime& runtime() const { return runtime_; }
  Stores& stores() { return stores_; }
  /// That streams read through; null: there is none.
  const std::shared_ptr<RangeCache>& cache() const { return cache_; }
  KeptBatches& kept() { return kept_; }
  /// The sessions report to it what memory they give back.
  const std::shared_ptr<Releases>& releases() const { return releases_; }
  /// Returns null if none are run.
  const std::shared_ptr<RowFunctions>& functions() const { return functions_; }

 private:
  static constexpr size_t kMaxUnused = 16;
  struct Entry {
    std::mutex mutex;
    std::condition_variable_any changed;
    bool opening = false;
    std::shared_ptr<const Dataset> dataset;
  };
  absl::StatusOr<std::shared_ptr<const Dataset>> OpenNow(const StreamSpec::Part& part);

  Runtime& runtime_;
  const AllowedPlaces allowed_;
  Stores stores_;  // a view, by which nothing is written beside data
  const std::shared_ptr<RangeCache> cache_;
  const std::shared_ptr<RowFunctions> functions_;
  KeptBatches kept_;
  const std::shared_ptr<Releases> releases_ = std::make_shared<Releases>();
  std::stop_source stop_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Entry>> entries_;  // by URI, and that of the labels
};

}  // namespace millrace
