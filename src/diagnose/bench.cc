#include "diagnose/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "base/cpu_time.h"
#include "cache/disk_cache.h"
#include "dataset/dataset.h"
#include "diagnose/machine.h"
#include "net/runtime.h"
#include "pipeline/source.h"

namespace millrace {

namespace {

using BenchClock = std::chrono::steady_clock;

// How long a stop waits at most.
constexpr std::chrono::milliseconds kBenchSlice{50};
// What the runtime has beyond the loader's budget: opening a data set takes memory, too.
constexpr uint64_t kBenchExtraBytes = uint64_t{256} << 20;

double SecondsSince(BenchClock::time_point start) {
  return std::chrono::duration<double>(BenchClock::now() - start).count();
}

/// Has the kernel forget the peak so far, so that each point has its own. Where that is not allowed the peak is that of
/// the whole program.
void ForgetPeak() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

LoaderOptions EndlessOptions(const BenchSettings& settings) {
  LoaderOptions options = settings.loader;
  options.epochs = 0;
  // All rows of all batches are images: of a data set smaller than a batch, too.
  options.last = LastBatch::kWrap;
  options.start.reset();
  return options;
}

/// A runtime, stores and an open data set.
class OpenSet {
 public:
  static absl::StatusOr<std::unique_ptr<OpenSet>> Open(const std::string& uri, const BenchSettings& settings) {
    auto set = std::unique_ptr<OpenSet>(new OpenSet(settings));
    OpenOptions options;
    options.cache_folder = settings.cache_folder;
    options.stop = settings.stop;
    const BenchClock::time_point start = BenchClock::now();
    ASSIGN_OR_RETURN(set->dataset_, Dataset::Open(set->runtime_, set->stores_, uri, options));
    set->opening_.seconds = SecondsSince(start);
    set->opening_.requests = set->requests();
    return set;
  }

  absl::StatusOr<std::unique_ptr<Loader>> MakeLoader(const LoaderOptions& options) {
    return Loader::Create(runtime_, Source(*dataset_), options);
  }
  const Dataset& dataset() const { return *dataset_; }
  const BenchOpening& opening() const { return opening_; }
  RequestTally requests() const { return RequestTally::Of(dataset_->store().counters()); }
  int threads() { return runtime_.cpu().threads(); }

 private:
  explicit OpenSet(const BenchSettings& settings)
      : runtime_({.io_threads = settings.io_threads,
                  .cpu_threads = settings.threads,
                  .memory_bytes = settings.loader.memory_bytes + kBenchExtraBytes}),
        stores_(runtime_) {}

  Runtime runtime_;
  Stores stores_;
  BenchOpening opening_;
  std::unique_ptr<Dataset> dataset_;
};

absl::StatusOr<Batch> NextBatch(Loader& loader, const std::stop_token& stop) {
  do {
    if (stop.stop_requested()) return absl::CancelledError("the measurement was interrupted");
  } while (!loader.WaitReady(kBenchSlice));
  ASSIGN_OR_RETURN(std::optional<Batch> batch, loader.Next());
  if (!batch) return absl::InternalError("an endless loader came to an end");
  return *std::move(batch);
}

/// Takes batches for `seconds`, and notes when each came.
absl::Status Take(Loader& loader, double seconds, const std::stop_token& stop,
                  const std::function<void(double)>& progress, BenchWindow* window) {
  const BenchClock::time_point start = BenchClock::now();
  double last = 0;
  do {
    ASSIGN_OR_RETURN(const Batch batch, NextBatch(loader, stop));
    const double now = SecondsSince(start);
    if (window->batch_ms.size() < BenchWindow::kMaxBatchTimes) window->batch_ms.push_back(1000 * (now - last));
    last = now;
    window->samples += batch.size;
    ++window->batches;
    progress(now);
  } while (last < seconds);
  window->seconds = last;
  return absl::OkStatus();
}

/// The same, with what it cost.
absl::StatusOr<BenchWindow> TakeWindow(const OpenSet& set, Loader& loader, const BenchSettings& settings,
                                       const std::function<void(double)>& progress) {
  BenchWindow window;
  const double cpu_before = CpuSeconds();
  const double machine_before = MachineCpuSeconds();
  const RequestTally before = set.requests();
  const StallReport stalls_before = loader.report().stalls;
  RETURN_IF_ERROR(Take(loader, settings.window_seconds, settings.stop, progress, &window));
  window.cpu_seconds = CpuSeconds() - cpu_before;
  window.other_cpu_seconds = std::max(0.0, MachineCpuSeconds() - machine_before - window.cpu_seconds);
  window.requests = set.requests() - before;
  const StallReport stalls = loader.report().stalls;
  for (size_t i = 0; i < kStallCauses; ++i) window.stalls[i] = stalls.seconds[i] - stalls_before.seconds[i];
  return window;
}

template <typename Value>
Spread SpreadOver(const BenchPoint& point, const Value& value) {
  std::vector<double> values;
  for (const BenchWindow& window : point.windows) values.push_back(value(window));
  return Spread::Of(std::move(values));
}

double BatchQuantile(const BenchWindow& window, double share) {
  std::vector<double> sorted = window.batch_ms;
  std::sort(sorted.begin(), sorted.end());
  return QuantileOf(sorted, share);
}

}  // namespace

BenchSummary Summarize(const BenchPoint& point) {
  const auto per_second = [](double count, const BenchWindow& window) {
    return window.seconds > 0 ? count / window.seconds : 0;
  };
  const auto per_1000 = [](double count, const BenchWindow& window) {
    return window.samples > 0 ? 1000 * count / static_cast<double>(window.samples) : 0;
  };
  BenchSummary sum;
  sum.samples_per_second =
      SpreadOver(point, [&](const BenchWindow& one) { return per_second(static_cast<double>(one.samples), one); });
  sum.bytes_per_second = SpreadOver(
      point, [&](const BenchWindow& one) { return per_second(static_cast<double>(one.requests.bytes_read), one); });
  sum.busy_cpus = SpreadOver(point, [&](const BenchWindow& one) { return per_second(one.cpu_seconds, one); });
  sum.other_busy_cpus =
      SpreadOver(point, [&](const BenchWindow& one) { return per_second(one.other_cpu_seconds, one); });
  sum.cpu_per_1000 = SpreadOver(point, [&](const BenchWindow& one) { return per_1000(one.cpu_seconds, one); });
  sum.gets_per_1000 =
      SpreadOver(point, [&](const BenchWindow& one) { return per_1000(static_cast<double>(one.requests.get), one); });
  sum.batch_p50_ms = SpreadOver(point, [](const BenchWindow& one) { return BatchQuantile(one, 0.5); });
  sum.batch_p99_ms = SpreadOver(point, [](const BenchWindow& one) { return BatchQuantile(one, 0.99); });
  for (const BenchWindow& window : point.windows) {
    sum.seconds += window.seconds;
    sum.samples += window.samples;
    sum.requests += window.requests;
    for (size_t i = 0; i < kStallCauses; ++i) sum.stalls[i] += window.stalls[i];
  }
  return sum;
}

RequestTally EpochRequests(const BenchPoint& point) {
  const BenchSummary sum = Summarize(point);
  if (sum.samples == 0) return {};
  const double factor = static_cast<double>(point.samples) / static_cast<double>(sum.samples);
  const auto scaled = [factor](uint64_t count) {
    return static_cast<uint64_t>(std::llround(factor * static_cast<double>(count)));
  };
  const RequestTally& all = sum.requests;
  return {.get = scaled(all.get),
          .head = scaled(all.head),
          .list = scaled(all.list),
          .put = scaled(all.put),
          .del = scaled(all.del),
          .retries = scaled(all.retries),
          .hedges = scaled(all.hedges),
          .bytes_read = scaled(all.bytes_read)};
}

absl::StatusOr<BenchPoint> MeasureRate(const std::string& uri, const BenchSettings& settings) {
  ForgetPeak();
  ASSIGN_OR_RETURN(const std::unique_ptr<OpenSet> set, OpenSet::Open(uri, settings));
  BenchPoint point;
  point.threads = set->threads();
  point.samples = set->dataset().index().size();
  point.objects = set->dataset().index().objects();
  point.sample_bytes = set->dataset().index().total_bytes();
  point.opening = set->opening();
  ASSIGN_OR_RETURN(const std::unique_ptr<Loader> loader, set->MakeLoader(EndlessOptions(settings)));
  const double all = settings.warm_up_seconds + settings.windows * settings.window_seconds;
  double before = 0;
  const auto progress = [&](double seconds) {
    if (settings.progress) settings.progress(std::min(1.0, (before + seconds) / all));
  };
  BenchWindow warm_up;
  RETURN_IF_ERROR(Take(*loader, settings.warm_up_seconds, settings.stop, progress, &warm_up));
  before = settings.warm_up_seconds;
  for (int i = 0; i < settings.windows; ++i) {
    ASSIGN_OR_RETURN(point.windows.emplace_back(), TakeWindow(*set, *loader, settings, progress));
    before += settings.window_seconds;
  }
  point.peak_rss_bytes = PeakResidentBytes();
  return point;
}

absl::StatusOr<FirstBatchPoint> MeasureFirstBatch(const std::string& uri, const BenchSettings& settings) {
  FirstBatchPoint point;
  std::vector<double> seconds;
  std::vector<double> open_seconds;
  for (int i = -1; i < settings.windows; ++i) {  // the first time builds an index, or copies it
    const BenchClock::time_point start = BenchClock::now();
    ASSIGN_OR_RETURN(const std::unique_ptr<OpenSet> set, OpenSet::Open(uri, settings));
    const double opened = SecondsSince(start);
    ASSIGN_OR_RETURN(const std::unique_ptr<Loader> loader, set->MakeLoader(EndlessOptions(settings)));
    RETURN_IF_ERROR(NextBatch(*loader, settings.stop).status());
    if (i >= 0) {
      seconds.push_back(SecondsSince(start));
      open_seconds.push_back(opened);
    }
    point.samples = set->dataset().index().size();
    point.objects = set->dataset().index().objects();
    point.requests = set->requests();
    if (settings.progress) settings.progress(static_cast<double>(i + 2) / (settings.windows + 1));
  }
  point.seconds = Spread::Of(std::move(seconds));
  point.open_seconds = Spread::Of(std::move(open_seconds));
  return point;
}

absl::StatusOr<std::vector<EpochCost>> MeasureEpochs(const std::string& uri, const BenchSettings& settings,
                                                     uint64_t epochs, const std::string& disk_cache) {
  ASSIGN_OR_RETURN(const std::unique_ptr<OpenSet> set, OpenSet::Open(uri, settings));
  LoaderOptions options = EndlessOptions(settings);
  if (!disk_cache.empty()) options.cache = DiskCache::OpenOrWarn({.folder = disk_cache});
  ASSIGN_OR_RETURN(const std::unique_ptr<Loader> loader, set->MakeLoader(options));
  std::vector<EpochCost> costs;
  for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
    EpochCost cost;
    const double cpu_before = CpuSeconds();
    const RequestTally before = set->requests();
    const BenchClock::time_point start = BenchClock::now();
    bool last = false;
    while (!last) {
      ASSIGN_OR_RETURN(const Batch batch, NextBatch(*loader, settings.stop));
      cost.samples += batch.valid;
      last = batch.last_of_epoch;
      if (settings.progress) {
        const double done = static_cast<double>(cost.samples) / static_cast<double>(loader->samples_per_epoch());
        settings.progress((static_cast<double>(epoch) + std::min(1.0, done)) / static_cast<double>(epochs));
      }
    }
    cost.seconds = SecondsSince(start);
    cost.cpu_seconds = CpuSeconds() - cpu_before;
    cost.requests = set->requests() - before;
    costs.push_back(cost);
  }
  return costs;
}

}  // namespace millrace
