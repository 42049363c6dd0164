#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/crypto.h"
#include "base/status.h"
#include "diagnose/damaged_samples.h"
#include "diagnose/spread.h"
#include "pipeline/loader.h"
#include "pipeline/stall_ledger.h"
#include "plan/position.h"
#include "store/request_counts.h"

/// Measures the input pipeline without a model, or with a pause in its place. Each measurement has a runtime, stores
/// and a loader of its own, so that one does not warm up another, but for what the store and the system cache.

namespace millrace {

struct BenchSettings {
  int threads = 0;  // that decode; 0: one for each CPU
  int io_threads = 1;
  /// These options set batch, images, order, memory. Epochs, start and the last batch are the measurement's own.
  LoaderOptions loader;
  double warm_up_seconds = 2;  // at the least; nothing of it is counted
  double window_seconds = 5;   // of each repeat, at the least
  int windows = 3;             // repeats
  double step_seconds = 0;     // of a model, which is a pause after each batch; 0: there is none
  std::string cache_folder;    // OpenOptions::cache_folder

  std::function<void(double share)> progress;  // of one measurement, 0 to 1; may be empty
  std::stop_token stop;                        // when requested, it ends soon with Cancelled
  DamagedSamples* damaged = nullptr;           // gets those of all batches; outlives the measurement; may be null
};

/// Is one repeat: a stretch of a running pipeline, from one batch to another.
struct BenchWindow {
  static constexpr size_t kMaxBatchTimes = 1'000'000;

  double seconds = 0;
  double step_seconds = 0;       // of it, the model's
  double cpu_seconds = 0;        // of all threads of this process, user and system
  double other_cpu_seconds = 0;  // of other programs of the machine
  uint64_t samples = 0;
  uint64_t batches = 0;
  RequestCounts requests;
  std::array<double, kStallCauses> stalls{};  // seconds that the consumer waited, by cause
  std::vector<double> batch_ms;               // from asking for a batch to having it; the first ones
  double gpu_busy = 0;                        // mean share of all GPUs, by whatever program; 0 if there are none
  uint64_t gpu_memory_bytes = 0;              // of these, in use at the most
};

/// Is the cost of opening a data set.
struct BenchOpening {
  double seconds = 0;
  RequestCounts requests;
};

/// Is one setting on one data set.
struct BenchPoint {
  int threads = 1;            // that decoded
  uint64_t samples = 0;       // of the data set
  uint64_t objects = 0;       // of it
  uint64_t sample_bytes = 0;  // of it, stored
  BenchOpening opening;
  std::vector<BenchWindow> windows;
  uint64_t peak_rss_bytes = 0;
};

/// Is a summary of the repeats of a point.
struct BenchSummary {
  Spread samples_per_second;
  Spread bytes_per_second;  // from the store
  Spread cpu_per_1000;      // CPU-seconds for 1,000 samples
  Spread busy_cpus;
  Spread other_busy_cpus;  // by other programs, of which a local store may be one
  Spread gets_per_1000;
  Spread model_busy;  // share of the time in which the model ran; 0 without one
  Spread gpu_busy;
  Spread batch_p50_ms;
  Spread batch_p99_ms;
  double seconds = 0;                         // of all repeats
  std::array<double, kStallCauses> stalls{};  // of all repeats
  RequestCounts requests;                     // of all repeats
  uint64_t samples = 0;                       // of all repeats
  uint64_t gpu_memory_bytes = 0;              // the most of all repeats
};
BenchSummary Summarize(const BenchPoint& point);

/// Adds repeats of the same setting that were measured apart. `point` may be empty so far.
void AddRepeats(BenchPoint repeats, BenchPoint* point);

/// Returns the requests of one epoch of `point`, extrapolated from its repeats; without those of opening.
RequestCounts EpochRequests(const BenchPoint& point);

/// Measures the largest rate at which batches come if the consumer does nothing with them. The epochs of the data set
/// follow one another without end, so that filling and draining the pipeline is not measured. Blocking. Errors are
/// those of Dataset::Open and Loader; Cancelled soon after a stop is requested.
absl::StatusOr<BenchPoint> MeasureRate(const std::string& uri, const BenchSettings& settings);

/// Is the time from nothing to the first batch: threads and connections are made, the data set is opened with an index
/// that exists, and the loader begins.
struct FirstBatchPoint {
  uint64_t samples = 0;  // of the data set
  uint64_t objects = 0;
  Spread seconds;          // in all
  Spread open_seconds;     // of it, until the data set is open
  RequestCounts requests;  // of the last repeat, until the first batch had come
};
/// Opens it once more than settings.windows says, and does not count the first time. Errors as above.
absl::StatusOr<FirstBatchPoint> MeasureFirstBatch(const std::string& uri, const BenchSettings& settings);

/// Is one epoch of several.
struct EpochCost {
  double seconds = 0;
  double cpu_seconds = 0;
  uint64_t samples = 0;
  RequestCounts requests;  // look-ahead into the next epoch may be among them
  Uint128 digest;          // of the stored bytes of its samples, if that was asked for
};
/// Goes through the data set `epochs` times, and keeps what it reads in `disk_cache` (a folder), or nowhere if that is
/// empty. Nothing is warmed up, since the first epoch is what it is about. Errors as above.
absl::StatusOr<std::vector<EpochCost>> MeasureEpochs(const std::string& uri, const BenchSettings& settings,
                                                     uint64_t epochs, const std::string& disk_cache);

/// Is the cost of continuing in the middle of an epoch, beside the cost of beginning it.
struct ResumePoint {
  uint64_t samples = 0;          // of an epoch
  Position position;             // of the middle
  Spread fresh_seconds;          // from nothing to the first batch, at the beginning of the epoch
  Spread resumed_seconds;        // the same in the middle
  RequestCounts fresh_requests;  // of the last repeat, until that batch had come
  RequestCounts resumed_requests;
  bool exact = false;  // what came behind an interruption was what would have come without it
};
/// Opens it once more than settings.windows says for each of the two, and does not count the first time. Errors as
/// above.
absl::StatusOr<ResumePoint> MeasureResume(const std::string& uri, const BenchSettings& settings);

/// Measures one epoch from nothing to its end, with its digest, which says whether all samples came, and as they are
/// stored. Errors as above.
absl::StatusOr<EpochCost> MeasureEpoch(const std::string& uri, const BenchSettings& settings);

}  // namespace millrace
