#include "diagnose/bench_run.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/process.h"
#include "pipeline/source.h"

namespace millrace {

namespace {

// The runtime has these bytes beyond the loader's budget, since opening a data set takes memory, too.
constexpr uint64_t kBenchExtraBytes = uint64_t{256} << 20;

}  // namespace

LoaderOptions EndlessOptions(const BenchSettings& settings) {
  LoaderOptions options = settings.loader;
  options.epochs = 0;
  // All rows of all batches are images: of a data set smaller than a batch, too.
  options.last = LastBatch::kWrap;
  options.start.reset();
  return options;
}

BenchSet::BenchSet(const BenchSettings& settings)
    : runtime_({.io_threads = settings.io_threads,
                .cpu_threads = settings.threads,
                .memory_bytes = settings.loader.memory_bytes + kBenchExtraBytes}),
      stores_(runtime_) {}

absl::StatusOr<std::unique_ptr<BenchSet>> BenchSet::Open(const std::string& uri, const BenchSettings& settings) {
  auto set = std::unique_ptr<BenchSet>(new BenchSet(settings));
  OpenOptions options;
  options.cache_folder = settings.cache_folder;
  options.stop = settings.stop;
  const BenchClock::time_point start = BenchClock::now();
  ASSIGN_OR_RETURN(set->dataset_, Dataset::Open(set->runtime_, set->stores_, uri, options));
  set->opening_.seconds = SecondsSince(start);
  set->opening_.requests = set->requests();
  return set;
}

absl::StatusOr<std::unique_ptr<Loader>> BenchSet::MakeLoader(const LoaderOptions& options) {
  return Loader::Create(runtime_, Source(*dataset_), options);
}

absl::StatusOr<Batch> NextBatch(Loader& loader, const BenchSettings& settings) {
  do {
    if (settings.stop.stop_requested()) return absl::CancelledError("the measurement was interrupted");
  } while (!loader.WaitReady(kBenchSlice));
  ASSIGN_OR_RETURN(std::optional<Batch> batch, loader.Next());
  if (!batch) return absl::InternalError("an endless loader came to an end");
  if (settings.damaged != nullptr) settings.damaged->Add(batch->quarantined);
  return *std::move(batch);
}

EpochMeter::Reading EpochMeter::Read() const {
  return {.time = BenchClock::now(), .cpu_seconds = CpuSeconds(), .requests = set_.requests()};
}

absl::StatusOr<EpochCost> EpochMeter::Take(Loader& loader, const BenchSettings& settings,
                                           const std::function<void(double share)>& progress) {
  EpochCost cost;
  bool last = false;
  while (!last) {
    ASSIGN_OR_RETURN(const Batch batch, NextBatch(loader, settings));
    cost.samples += batch.valid;
    cost.digest += batch.digest;
    last = batch.last_of_epoch;
    const double done = static_cast<double>(cost.samples) / static_cast<double>(loader.samples_per_epoch());
    if (progress) progress(std::min(1.0, done));
  }
  const Reading before = std::exchange(last_, Read());
  cost.seconds = std::chrono::duration<double>(last_.time - before.time).count();
  cost.cpu_seconds = last_.cpu_seconds - before.cpu_seconds;
  cost.requests = last_.requests - before.requests;
  return cost;
}

}  // namespace millrace
