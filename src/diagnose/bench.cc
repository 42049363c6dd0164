#include "diagnose/bench.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include "base/long_task.h"
#include "base/process.h"
#include "cache/disk_cache.h"
#include "diagnose/bench_run.h"
#include "diagnose/gpu_meter.h"
#include "diagnose/machine.h"

namespace millrace {

namespace {

/// Has the kernel forget the peak so far, so that each point has its own, and gives back what earlier ones have left to
/// the allocator. Where that is not allowed the peak is that of the whole program.
void ForgetPeak() {
  ::malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
}

/// The model, which is a pause: the consumer asks for no batch meanwhile.
absl::Status Step(double seconds, const std::stop_token& stop) {
  if (seconds <= 0 || SleepUnlessStopped(std::chrono::duration<double>(seconds), stop)) return absl::OkStatus();
  return absl::CancelledError("the measurement was interrupted");
}

/// Looks at the GPUs a few times a second.
class GpuWatch {
 public:
  explicit GpuWatch(const GpuMeter* meter) : meter_(meter) {}

  void Look(double seconds, BenchWindow* window) {
    if (meter_ == nullptr || (readings_ > 0 && seconds < last_ + kGpuSeconds)) return;
    last_ = seconds;
    const GpuMeter::Reading now = meter_->Read();
    window->gpu_busy = (window->gpu_busy * readings_ + now.busy) / (readings_ + 1);
    window->gpu_memory_bytes = std::max(window->gpu_memory_bytes, now.memory_bytes);
    ++readings_;
  }

 private:
  static constexpr double kGpuSeconds = 0.2;

  const GpuMeter* const meter_;  // null: there are none
  double last_ = 0;
  int readings_ = 0;
};

/// Takes batches for `seconds`, and notes how long each took to come.
absl::Status Take(Loader& loader, double seconds, const BenchSettings& settings, const GpuMeter* gpus,
                  const std::function<void(double)>& progress, BenchWindow* window) {
  GpuWatch watch(gpus);
  const BenchClock::time_point start = BenchClock::now();
  double last = 0;
  do {
    ASSIGN_OR_RETURN(const Batch batch, NextBatch(loader, settings));
    const double came = SecondsSince(start);
    if (window->batch_ms.size() < BenchWindow::kMaxBatchTimes) window->batch_ms.push_back(1000 * (came - last));
    RETURN_IF_ERROR(Step(settings.step_seconds, settings.stop));
    const double stepped = SecondsSince(start);
    if (settings.step_seconds > 0) window->step_seconds += stepped - came;
    watch.Look(stepped, window);
    last = SecondsSince(start);  // what the look took is the time of neither the model nor the next batch
    window->samples += batch.size;
    ++window->batches;
    progress(last);
  } while (last < seconds);
  window->seconds = last;
  return absl::OkStatus();
}

/// Returns the same, with what it cost.
absl::StatusOr<BenchWindow> TakeWindow(const BenchSet& set, Loader& loader, const BenchSettings& settings,
                                       const GpuMeter* gpus, const std::function<void(double)>& progress) {
  BenchWindow window;
  const double cpu_before = CpuSeconds();
  const double machine_before = MachineCpuSeconds();
  const RequestCounts before = set.requests();
  const StallReport stalls_before = loader.report().stalls;
  RETURN_IF_ERROR(Take(loader, settings.window_seconds, settings, gpus, progress, &window));
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
  sum.model_busy = SpreadOver(point, [&](const BenchWindow& one) { return per_second(one.step_seconds, one); });
  sum.gpu_busy = SpreadOver(point, [](const BenchWindow& one) { return one.gpu_busy; });
  sum.batch_p50_ms = SpreadOver(point, [](const BenchWindow& one) { return BatchQuantile(one, 0.5); });
  sum.batch_p99_ms = SpreadOver(point, [](const BenchWindow& one) { return BatchQuantile(one, 0.99); });
  for (const BenchWindow& window : point.windows) {
    sum.seconds += window.seconds;
    sum.samples += window.samples;
    sum.gpu_memory_bytes = std::max(sum.gpu_memory_bytes, window.gpu_memory_bytes);
    sum.requests += window.requests;
    for (size_t i = 0; i < kStallCauses; ++i) sum.stalls[i] += window.stalls[i];
  }
  return sum;
}

void AddRepeats(BenchPoint repeats, BenchPoint* point) {
  if (point->windows.empty()) {
    *point = std::move(repeats);
    return;
  }
  point->windows.insert(point->windows.end(), std::make_move_iterator(repeats.windows.begin()),
                        std::make_move_iterator(repeats.windows.end()));
  point->peak_rss_bytes = std::max(point->peak_rss_bytes, repeats.peak_rss_bytes);
}

RequestCounts EpochRequests(const BenchPoint& point) {
  const BenchSummary sum = Summarize(point);
  if (sum.samples == 0) return {};
  const double factor = static_cast<double>(point.samples) / static_cast<double>(sum.samples);
  const auto scaled = [factor](uint64_t count) {
    return static_cast<uint64_t>(std::llround(factor * static_cast<double>(count)));
  };
  const RequestCounts& all = sum.requests;
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
  ASSIGN_OR_RETURN(const std::unique_ptr<BenchSet> set, BenchSet::Open(uri, settings));
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
  const std::unique_ptr<GpuMeter> gpus = GpuMeter::Open();
  RETURN_IF_ERROR(Take(*loader, settings.warm_up_seconds, settings, gpus.get(), progress, &warm_up));
  before = settings.warm_up_seconds;
  for (int i = 0; i < settings.windows; ++i) {
    ASSIGN_OR_RETURN(point.windows.emplace_back(), TakeWindow(*set, *loader, settings, gpus.get(), progress));
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
    ASSIGN_OR_RETURN(const std::unique_ptr<BenchSet> set, BenchSet::Open(uri, settings));
    const double opened = SecondsSince(start);
    ASSIGN_OR_RETURN(const std::unique_ptr<Loader> loader, set->MakeLoader(EndlessOptions(settings)));
    RETURN_IF_ERROR(NextBatch(*loader, settings).status());
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
  ASSIGN_OR_RETURN(const std::unique_ptr<BenchSet> set, BenchSet::Open(uri, settings));
  LoaderOptions options = EndlessOptions(settings);
  if (!disk_cache.empty()) options.cache = DiskCache::OpenOrWarn({.folder = disk_cache});
  EpochMeter meter(*set);
  ASSIGN_OR_RETURN(const std::unique_ptr<Loader> loader, set->MakeLoader(options));
  std::vector<EpochCost> costs;
  for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
    const auto progress = [&](double share) {
      if (settings.progress) settings.progress((static_cast<double>(epoch) + share) / static_cast<double>(epochs));
    };
    ASSIGN_OR_RETURN(costs.emplace_back(), meter.Take(*loader, settings, progress));
  }
  return costs;
}

namespace {

/// Represents the place of the next batch, without its memory.
struct BatchPlace {
  std::vector<std::string> keys;
  Position after;
};
absl::StatusOr<BatchPlace> NextPlace(Loader& loader, const BenchSettings& settings) {
  ASSIGN_OR_RETURN(Batch batch, NextBatch(loader, settings));
  return BatchPlace{std::move(batch.keys), batch.position};
}

/// Finds the middle of the epoch, and checks that the samples behind an interruption are those that would have come.
absl::Status TryResume(BenchSet& set, std::unique_ptr<Loader> loader, LoaderOptions options,
                       const BenchSettings& settings, ResumePoint* point) {
  constexpr int kBefore = 3;  // batches that are delivered before the interruption
  point->samples = loader->samples_per_epoch();
  for (int batch = 1; batch < kBefore; ++batch) RETURN_IF_ERROR(NextPlace(*loader, settings).status());
  options.start = loader->report().position;
  point->position = *options.start;
  point->position.epoch = 0;
  point->position.consumed = point->samples / 2 / options.batch * options.batch;
  ASSIGN_OR_RETURN(const BatchPlace expected, NextPlace(*loader, settings));
  loader.reset();  // there may be no memory for two
  ASSIGN_OR_RETURN(loader, set.MakeLoader(options));
  ASSIGN_OR_RETURN(const BatchPlace next, NextPlace(*loader, settings));
  point->exact = next.keys == expected.keys && next.after.ToString() == expected.after.ToString();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ResumePoint> MeasureResume(const std::string& uri, const BenchSettings& settings) {
  ResumePoint point;
  std::vector<double> seconds[2];
  for (int i = -1; i < settings.windows; ++i) {
    for (const bool resumed : {false, true}) {
      const BenchClock::time_point start = BenchClock::now();
      ASSIGN_OR_RETURN(const std::unique_ptr<BenchSet> set, BenchSet::Open(uri, settings));
      LoaderOptions options = EndlessOptions(settings);
      if (resumed) options.start = point.position;
      ASSIGN_OR_RETURN(std::unique_ptr<Loader> loader, set->MakeLoader(options));
      RETURN_IF_ERROR(NextPlace(*loader, settings).status());
      if (i >= 0) seconds[resumed ? 1 : 0].push_back(SecondsSince(start));
      (resumed ? point.resumed_requests : point.fresh_requests) = set->requests();
      if (!resumed && i < 0) RETURN_IF_ERROR(TryResume(*set, std::move(loader), options, settings, &point));
    }
    if (settings.progress) settings.progress(static_cast<double>(i + 2) / (settings.windows + 1));
  }
  point.fresh_seconds = Spread::Of(std::move(seconds[0]));
  point.resumed_seconds = Spread::Of(std::move(seconds[1]));
  return point;
}

absl::StatusOr<EpochCost> MeasureEpoch(const std::string& uri, const BenchSettings& settings) {
  ASSIGN_OR_RETURN(const std::unique_ptr<BenchSet> set, BenchSet::Open(uri, settings));
  LoaderOptions options = settings.loader;
  options.epochs = 1;
  options.last = LastBatch::kPad;
  options.digest = DigestOf::kRaw;
  options.start.reset();
  EpochMeter meter(*set);
  ASSIGN_OR_RETURN(const std::unique_ptr<Loader> loader, set->MakeLoader(options));
  return meter.Take(*loader, settings, settings.progress);
}

}  // namespace millrace
