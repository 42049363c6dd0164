#include "diagnose/trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/process.h"
#include "dataset/dataset.h"
#include "diagnose/bench_run.h"
#include "diagnose/host_speed.h"
#include "diagnose/temporary_folder.h"
#include "transfer/bulk_job.h"
#include "transfer/key_pattern.h"

namespace millrace {

namespace {

constexpr size_t kLoaderTries = 5;
constexpr double kStretchSeconds = 4;    // behind the first batch, at the most
constexpr double kStretchesSeconds = 6;  // beyond that, further tries end with the first batch
constexpr double kTriesSeconds = 10;     // beyond that, there are no further ones
constexpr size_t kCopyTries = 3;
constexpr double kCopySeconds = 3;
constexpr double kCopiesSeconds = 5;
// A line is drawn through the marks of at least this many copied objects. The number is several times that of objects
// in flight at once (transfer/bulk_job.h).
constexpr size_t kLeastCopyMarks = 192;
constexpr size_t kTrialWindows = 3;

struct LoaderTry {
  double startup_seconds = 0;
  double cpu_seconds = 0;        // until the end of it
  uint64_t samples = 0;          // in all
  std::vector<TrialMark> marks;  // behind the first batch
  bool whole = false;
};

absl::StatusOr<LoaderTry> TryOnce(const std::string& uri, const BenchSettings& settings, double stretch_seconds) {
  LoaderTry found;
  const BenchClock::time_point start = BenchClock::now();
  ASSIGN_OR_RETURN(const std::unique_ptr<BenchSet> set, BenchSet::Open(uri, settings));
  const double cpu_before = CpuSeconds();
  LoaderOptions options = settings.loader;
  options.epochs = 1;
  options.last = LastBatch::kPad;
  options.start.reset();
  ASSIGN_OR_RETURN(const std::unique_ptr<Loader> loader, set->MakeLoader(options));
  const auto take = [&] {
    absl::StatusOr<Batch> batch = NextBatch(*loader, settings);
    if (batch.ok()) found.samples += batch->valid;
    if (batch.ok()) found.whole = batch->last_of_epoch;
    return batch.status();
  };
  RETURN_IF_ERROR(take());
  found.startup_seconds = SecondsSince(start);
  const BenchClock::time_point first = BenchClock::now();
  const double cpu_first = CpuSeconds();
  const uint64_t first_samples = found.samples;
  while (!found.whole && SecondsSince(first) < stretch_seconds) {
    if (settings.stop.stop_requested()) return absl::CancelledError("the measurement was interrupted");
    if (!loader->WaitReady(kBenchSlice)) continue;
    RETURN_IF_ERROR(take());
    found.marks.push_back({SecondsSince(first), CpuSeconds() - cpu_first, found.samples - first_samples});
  }
  found.cpu_seconds = CpuSeconds() - cpu_before;
  return found;
}

/// Makes the folder in which each try keeps an index of so many bytes. Null if there are none, or if there is no room
/// for them.
std::unique_ptr<TemporaryFolder> FolderForIndex(uint64_t index_bytes) {
  if (index_bytes == 0) return nullptr;
  absl::StatusOr<std::unique_ptr<TemporaryFolder>> folder = TemporaryFolder::Make();
  if (!folder.ok()) return nullptr;
  const absl::StatusOr<DiskSpace> space = MeasureSpace((*folder)->path());
  if (!space.ok() || space->free_bytes / 4 < index_bytes) return nullptr;
  return *std::move(folder);
}

/// Copies the objects below the place of a data set, until a limit is reached.
class Copying {
 public:
  Copying(const Dataset& data, Location to, uint64_t most_bytes, const std::stop_token& stop)
      : data_(data), to_(std::move(to)), most_bytes_(most_bytes), stop_(stop), start_(BenchClock::now()) {}

  /// Null if some of it could not be copied. To be called once.
  absl::StatusOr<std::optional<CopyRate>> Run() {
    std::vector<CopyMark> marks;
    uint64_t done = 0;
    BulkJob job({.copied =
                     [&](const ObjectInfo& object, const std::string&, const ObjectInfo&) {
                       done += object.size;
                       marks.push_back({SecondsSince(start_), done});
                     },
                 .stop = stop_});
    const std::string below = AsFolder(data_.place().prefix);
    const absl::Status status = ForEachObject(
        data_.store(), below, [&](const ObjectInfo& object) { return Take(object, below, job); }, stop_);
    if (!enough_) waits_.push_back({returned_, SecondsSince(start_)});
    const BulkReport report = job.Finish().copied;
    const double seconds = SecondsSince(start_);
    if (stop_.stop_requested()) return absl::CancelledError("the measurement was interrupted");
    objects = report.objects;
    bytes = report.bytes;
    if (report.failed > 0 || (report.bytes == 0 && (status.ok() || enough_))) return std::nullopt;
    if (!status.ok() && !enough_) return status;
    if (enough_) {
      std::erase_if(marks, [this](const CopyMark& mark) { return mark.seconds > ended_; });
      LeaveOutWaits(&marks);
      const CopyRate rate = marks.size() >= kLeastCopyMarks ? CopyRateFromMarks(marks) : CopyRate{};
      if (rate.bytes_per_second > 0) return rate;
    }
    double copying = seconds;
    for (const Wait& wait : waits_) copying -= wait.end - wait.begin;
    return CopyRate{.bytes_per_second = static_cast<double>(bytes) / std::max(copying, 1e-9)};
  }
  bool whole() const { return !enough_; }

  uint64_t objects = 0;
  uint64_t bytes = 0;

 private:
  /// These times are for the listing, in seconds since the beginning.
  struct Wait {
    double begin = 0;
    double end = 0;
  };

  absl::Status Take(const ObjectInfo& object, const std::string& below, BulkJob& job) {
    const double now = SecondsSince(start_);
    waits_.push_back({returned_, now});
    absl::Status status = Begin(object, below, now, job);
    returned_ = SecondsSince(start_);
    if (enough_) ended_ = now;
    return status;
  }

  absl::Status Begin(const ObjectInfo& object, const std::string& below, double seconds, BulkJob& job) {
    if (object.key.ends_with('/') || IsOwnFile(std::string_view(object.key).substr(below.size())))
      return absl::OkStatus();
    enough_ = (number_ > 0 && seconds >= kCopySeconds) || object.size > most_bytes_ - taken_;
    if (enough_) return absl::CancelledError("enough was copied");
    taken_ += object.size;
    // Copies are named by numbers: a name of an object may not be possible for a file.
    return job.Copy(data_.store(), object, *to_.store, to_.Key(fmt::format("{:09}", number_++)));
  }

  void LeaveOutWaits(std::vector<CopyMark>* marks) const {
    size_t wait = 0;
    double waited = 0;
    for (CopyMark& mark : *marks) {
      for (; wait < waits_.size() && waits_[wait].end <= mark.seconds; ++wait) {
        waited += waits_[wait].end - waits_[wait].begin;
      }
      const double now = wait < waits_.size() ? std::max(0.0, mark.seconds - waits_[wait].begin) : 0;
      mark.seconds -= waited + now;
    }
  }

  const Dataset& data_;
  const Location to_;
  const uint64_t most_bytes_;
  const std::stop_token stop_;
  const BenchClock::time_point start_;
  bool enough_ = false;
  double ended_ = 0;  // when that was found
  double returned_ = 0;
  std::vector<Wait> waits_;
  uint64_t taken_ = 0;
  uint64_t number_ = 0;
};

bool IsWholeFolder(const Dataset& data) {
  return !data.is_manifest() && data.place().names.empty() && data.place().selection == nullptr;
}

}  // namespace

TrialRates RatesFromMarks(const std::vector<TrialMark>& marks) {
  TrialRates rates;
  if (marks.size() < 2) return rates;
  const double half = marks.back().seconds / 2;
  // The last mark by then: a window that began with a later one would leave out the wait for a burst.
  const auto by = [&](double seconds) -> TrialMark {
    const auto later =
        std::find_if(marks.begin(), marks.end(), [&](const TrialMark& mark) { return mark.seconds > seconds; });
    return later == marks.begin() ? TrialMark{} : *(later - 1);
  };
  const TrialMark filled = by(half);
  for (size_t i = 0; i < kTrialWindows; ++i) {
    // Multiplied last, so that the end of the last window is the last mark's time to the bit.
    const TrialMark begin = by(half * (1 + static_cast<double>(i) / kTrialWindows));
    const TrialMark end = by(half * (1 + static_cast<double>(i + 1) / kTrialWindows));
    const double seconds = end.seconds - begin.seconds;
    if (seconds <= 0) continue;
    rates.samples_per_second.push_back(static_cast<double>(end.samples - begin.samples) / seconds);
  }
  const auto samples = static_cast<double>(marks.back().samples - filled.samples);
  if (samples > 0) rates.cpu_seconds_per_sample = (marks.back().cpu_seconds - filled.cpu_seconds) / samples;
  return rates;
}

CopyRate CopyRateFromMarks(const std::vector<CopyMark>& marks) {
  if (marks.size() < 2) return {};
  const auto count = static_cast<double>(marks.size());
  double bytes = 0;
  double seconds = 0;
  for (const CopyMark& mark : marks) {
    bytes += static_cast<double>(mark.bytes) / count;
    seconds += mark.seconds / count;
  }
  double both = 0;
  double squares = 0;
  for (const CopyMark& mark : marks) {
    const double more = static_cast<double>(mark.bytes) - bytes;
    both += more * (mark.seconds - seconds);
    squares += more * more;
  }
  if (both <= 0 || squares <= 0) return {};
  return {.filling_seconds = std::max(0.0, seconds - bytes * both / squares), .bytes_per_second = squares / both};
}

absl::StatusOr<LoaderTrial> TryLoader(const std::string& uri, const BenchSettings& settings, uint64_t index_bytes) {
  const std::unique_ptr<TemporaryFolder> scratch = FolderForIndex(index_bytes);
  const BenchClock::time_point start = BenchClock::now();
  LoaderTrial trial;
  std::vector<double> startups;
  std::vector<double> rates;
  std::vector<double> costs;
  double stretch_seconds = kStretchSeconds;
  while (trial.tries < kLoaderTries && (trial.tries == 0 || SecondsSince(start) < kTriesSeconds)) {
    BenchSettings with = settings;
    if (scratch != nullptr) with.cache_folder = fmt::format("{}/{}", scratch->path(), trial.tries);
    const absl::StatusOr<LoaderTry> tried = TryOnce(uri, with, stretch_seconds);
    std::error_code ignored;
    if (scratch != nullptr) std::filesystem::remove_all(with.cache_folder, ignored);
    RETURN_IF_ERROR(tried.status());
    const LoaderTry& one = *tried;
    ++trial.tries;
    startups.push_back(one.startup_seconds);
    const bool goes_on = stretch_seconds > 0;
    if (goes_on) {
      trial.samples = std::max(trial.samples, one.samples);
      trial.whole = trial.whole || one.whole;
      TrialRates found = RatesFromMarks(one.marks);
      const bool measured = !one.whole && !found.samples_per_second.empty();
      if (!measured) found.cpu_seconds_per_sample = one.cpu_seconds / static_cast<double>(one.samples);
      if (!measured && !one.marks.empty()) {
        const TrialMark& all = one.marks.back();
        found.samples_per_second = {static_cast<double>(all.samples) / std::max(all.seconds, 1e-9)};
      }
      rates.insert(rates.end(), found.samples_per_second.begin(), found.samples_per_second.end());
      costs.push_back(found.cpu_seconds_per_sample);
    }
    if (!one.whole || SecondsSince(start) >= kStretchesSeconds) stretch_seconds = 0;
  }
  trial.startup_seconds = Spread::Of(std::move(startups));
  trial.samples_per_second = Spread::Of(std::move(rates));
  trial.cpu_seconds_per_sample = Spread::Of(std::move(costs)).median;
  return trial;
}

absl::StatusOr<CopyTrial> TryCopy(const std::string& uri, const BenchSettings& settings, uint64_t most_bytes) {
  const absl::StatusOr<std::unique_ptr<TemporaryFolder>> scratch = TemporaryFolder::Make();
  if (!scratch.ok()) return CopyTrial{};
  const absl::StatusOr<DiskSpace> space = MeasureSpace((*scratch)->path());
  if (!space.ok()) return CopyTrial{};
  most_bytes = std::min(most_bytes, space->free_bytes / 4);
  CopyTrial trial;
  std::vector<double> fillings;
  std::vector<double> rates;
  const BenchClock::time_point start = BenchClock::now();
  while (trial.tries < kCopyTries && (trial.tries == 0 || SecondsSince(start) < kCopiesSeconds)) {
    ++trial.tries;
    Runtime runtime;  // with connections of its own, as a program that begins
    Stores stores(runtime);
    OpenOptions open;
    open.cache_folder = settings.cache_folder;
    open.stop = settings.stop;
    ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> data, Dataset::Open(runtime, stores, uri, open));
    if (!IsWholeFolder(*data)) return trial;
    const std::string folder = fmt::format("{}/{}/", (*scratch)->path(), trial.tries);
    ASSIGN_OR_RETURN(Location to, stores.Open(folder));
    Copying copying(*data, std::move(to), most_bytes, settings.stop);
    ASSIGN_OR_RETURN(const std::optional<CopyRate> rate, copying.Run());
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    if (!rate) return CopyTrial{.tries = trial.tries};
    trial.objects = copying.objects;
    trial.bytes = copying.bytes;
    trial.whole = copying.whole();
    fillings.push_back(rate->filling_seconds);
    rates.push_back(rate->bytes_per_second);
  }
  trial.filling_seconds = Spread::Of(std::move(fillings));
  trial.bytes_per_second = Spread::Of(std::move(rates));
  return trial;
}

}  // namespace millrace
