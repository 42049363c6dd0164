#include "cli/bench_scenarios.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/counted.h"
#include "base/own_folder.h"
#include "base/size.h"
#include "cli/console.h"
#include "diagnose/rivals.h"
#include "diagnose/synthetic_shards.h"
#include "diagnose/trials.h"
#include "net/runtime.h"
#include "transfer/artifact.h"
#include "transfer/bulk_job.h"
#include "transfer/key_pattern.h"

namespace millrace::cli {

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kSyntheticShardBytes = 64 * kMiB;
constexpr uint64_t kAsObjects = 0;  // in place of the bytes of a shard

// Others whose curves say something: each worker waits for the object, or the shard, that it reads.
constexpr const char* kRivalsOfObjects[] = {"dataloader", "s3torchconnector", "s3fs", "rclone"};
constexpr const char* kRivalsThatKeep[] = {"dataloader", "s3fs", "rclone"};
constexpr const char* kRivalsOfShards[] = {"dataloader", "s3torchconnector", "webdataset"};
constexpr int kCurveRepeats = 3;
constexpr uint64_t kCurveImages = 256;    // whose pixels are compared
constexpr uint64_t kBatchesOfWorker = 4;  // in an epoch, at the least

// A store has these faults on a bad day, all at once.
const std::vector<std::string>& StormFaults() {
  static const auto* const faults = new std::vector<std::string>{
      "GET bench/* status=503 p=0.2", "GET bench/* reset=20000 p=0.03", "GET bench/* cut=20000 p=0.03",
      "GET bench/* flip=20000 p=0.01", "GET bench/* delay-ms=1000 p=0.02"};
  return *faults;
}

/// Runs what was asked for, and says meanwhile how far it is.
class BenchRun {
 public:
  BenchRun(const BenchFlags& flags, BenchRequest request, const BenchPlace& place, std::stop_token stop)
      : flags_(flags), request_(std::move(request)), place_(place), stop_(std::move(stop)) {
    report_.version = MILLRACE_VERSION;
    report_.machine = DescribeMachine();
    report_.prices = request_.prices;
    request_.settings.stop = stop_;
    if (place_.folder) request_.settings.cache_folder = place_.folder->path() + "/cache";
    report_.settings = request_.settings;
    request_.settings.damaged = &report_.damaged;
    report_.uri = flags_.synthetic ? "synthetic" : flags_.uri;
    report_.priced = (flags_.synthetic ? place_.root : flags_.uri).starts_with("s3://");
    if (!flags_.synthetic) return;
    report_.data = fmt::format("{} synthetic photographs of 640 x 480 pixels and some 115 KB, in tar shards of {}",
                               request_.samples, FormatSize(kSyntheticShardBytes));
    report_.store =
        place_.server
            ? fmt::format("a local S3 server (devstore) with first bytes after {} ms; it uses the CPUs of the pipeline",
                          flags_.first_byte_ms)
            : "a folder of this machine, whose files the system may keep in memory";
  }

  absl::Status Run() {
    if (!request_.rivals.empty()) RETURN_IF_ERROR(PrepareRivals());
    if (request_.scenarios.contains("rate")) RETURN_IF_ERROR(RunRate());
    if (request_.scenarios.contains("orders")) RETURN_IF_ERROR(RunOrders());
    if (request_.scenarios.contains("cache")) RETURN_IF_ERROR(RunEpochs());
    if (request_.scenarios.contains("shards")) RETURN_IF_ERROR(RunShards());
    if (request_.scenarios.contains("first-batch")) RETURN_IF_ERROR(RunFirstBatch());
    if (request_.scenarios.contains("resume")) RETURN_IF_ERROR(RunResume());
    if (!request_.rivals.empty()) RETURN_IF_ERROR(RunRivals());
    if (request_.scenarios.contains("faults")) RETURN_IF_ERROR(RunStorm());
    return absl::OkStatus();
  }

  BenchReport TakeReport() { return std::move(report_); }

 private:
  /// The URI of the data, which are made if they are synthetic and do not exist yet.
  absl::StatusOr<std::string> Data(uint64_t samples, uint64_t shard_bytes) {
    if (!flags_.synthetic) return flags_.uri;
    const std::string uri = fmt::format("{}/{}-samples-{}", place_.root, samples, shard_bytes);
    if (!made_.insert(uri).second) return uri;
    Runtime runtime;
    Stores stores(runtime);
    ASSIGN_OR_RETURN(const Location location, stores.Open(uri));
    ProgressLine line("making images", ProgressLine::Unit::kItems);
    RETURN_IF_ERROR(WriteSyntheticShards(
                        runtime, location, {.samples = samples, .shard_bytes = shard_bytes},
                        [&](uint64_t images) { line.Update(images, samples); }, stop_)
                        .status());
    return uri;
  }

  /// `measure` with the settings of this run, and a line of progress.
  template <typename Measure>
  auto Measured(const std::string& label, const BenchSettings& settings, const Measure& measure) {
    constexpr uint64_t kParts = 1000;
    ProgressLine line(label, ProgressLine::Unit::kItems);
    BenchSettings with_progress = settings;
    with_progress.progress = [&line](double share) {
      line.Update(static_cast<uint64_t>(share * static_cast<double>(kParts)), kParts);
    };
    return measure(with_progress);
  }

  absl::Status RunRate() {
    ASSIGN_OR_RETURN(const std::string uri, Data(request_.samples, kSyntheticShardBytes));
    for (const int threads : request_.threads) {
      BenchSettings settings = request_.settings;
      settings.threads = threads;
      ASSIGN_OR_RETURN(report_.rate.emplace_back(),
                       Measured(fmt::format("rate, {} threads", threads), settings,
                                [&](const BenchSettings& with) { return MeasureRate(uri, with); }));
    }
    return absl::OkStatus();
  }

  /// The repeats of all orders take turns, so that a machine that is slow for a while is slow for all of them.
  /// Synthetic data are read as raw objects, too, at random: that is as many requests as there are samples.
  absl::Status RunOrders() {
    struct Order {
      Shuffle shuffle;
      bool raw;
      std::string uri;
      std::vector<BenchPoint> points;  // by threads
    };
    ASSIGN_OR_RETURN(const std::string uri, Data(request_.samples, kSyntheticShardBytes));
    std::vector<Order> orders = {
        {Shuffle::kNone, false, uri, {}}, {Shuffle::kWindow, false, uri, {}}, {Shuffle::kGlobal, false, uri, {}}};
    if (flags_.synthetic) {
      ASSIGN_OR_RETURN(std::string raw, Data(request_.samples, kAsObjects));
      orders.push_back({Shuffle::kGlobal, true, std::move(raw), {}});
    }
    for (const int threads : request_.threads) {
      for (Order& order : orders) order.points.emplace_back();
      for (size_t turn = 0; turn < orders.size() * static_cast<size_t>(request_.settings.windows); ++turn) {
        const size_t round = turn / orders.size();
        Order& order = orders[(turn + round) % orders.size()];  // each round begins with another one
        BenchSettings settings = request_.settings;
        settings.threads = threads;
        settings.windows = 1;
        settings.loader.shuffle = order.shuffle;
        ASSIGN_OR_RETURN(BenchPoint point,
                         Measured(fmt::format("orders, {}, {}, repeat {} of {}", OrderName(order.shuffle, order.raw),
                                              Counted(static_cast<uint64_t>(threads), "thread"), round + 1,
                                              request_.settings.windows),
                                  settings, [&](const BenchSettings& with) { return MeasureRate(order.uri, with); }));
        AddRepeats(std::move(point), &order.points.back());
      }
    }
    for (Order& order : orders) {
      for (BenchPoint& point : order.points) report_.orders.push_back({order.shuffle, order.raw, std::move(point)});
    }
    if (!flags_.synthetic) return absl::OkStatus();
    RETURN_IF_ERROR(RunRivalsOfObjects(orders.back().uri));
    return Remove(orders.back().uri);
  }

  /// Measures how many workers of others hide the time that an object takes to come.
  absl::Status RunRivalsOfObjects(const std::string& uri) {
    if (request_.curve_workers.empty()) return absl::OkStatus();
    BenchSettings settings = CurveSettings();
    const uint64_t most_workers = static_cast<uint64_t>(*request_.curve_workers.rbegin());
    settings.loader.batch =
        std::clamp<uint64_t>(request_.samples / (kBatchesOfWorker * most_workers), 1, settings.loader.batch);
    RivalRun run = CurveRun(uri, "raw");
    for (const char* const name : kRivalsOfObjects) {
      for (const int workers : request_.curve_workers) {
        if (!IsAsked(name)) break;
        run.workers = workers;
        ASSIGN_OR_RETURN(report_.object_rivals.emplace_back(), MeasureOne("orders", {.name = name}, run, settings));
        if (!report_.object_rivals.back().left_out.empty()) break;
      }
    }
    return absl::OkStatus();
  }

  /// Measures how the rates of others depend on the size of a shard.
  absl::Status RunRivalsOfShards(const std::string& uri, uint64_t bytes) {
    if (request_.curve_workers.empty()) return absl::OkStatus();
    RivalRun run = CurveRun(uri, "tar");
    run.workers = *request_.rival_workers.rbegin();
    for (const char* const name : kRivalsOfShards) {
      if (!IsAsked(name)) continue;
      ASSIGN_OR_RETURN(RivalPoint point,
                       MeasureOne(fmt::format("shards, {}", FormatSize(bytes)), {.name = name}, run, CurveSettings()));
      report_.shard_rivals.emplace_back(bytes, std::move(point));
    }
    return absl::OkStatus();
  }

  bool IsAsked(std::string_view name) const {
    return std::any_of(request_.rivals.begin(), request_.rivals.end(),
                       [name](const RivalRequest& rival) { return rival.name == name; });
  }

  /// A curve has many points.
  BenchSettings CurveSettings() const {
    BenchSettings settings = request_.settings;
    settings.windows = std::min(settings.windows, kCurveRepeats);
    return settings;
  }

  /// Only the measurement of the others over the whole data set checks that an epoch has all images.
  RivalRun CurveRun(const std::string& uri, const char* kind) const {
    RivalRun run = rival_run_;
    run.uri = uri;
    run.ours.kind = kind;
    run.ours.pixels.whole_epoch = false;
    run.ours.pixels.samples = std::min(run.ours.pixels.samples, kCurveImages);
    return run;
  }

  absl::StatusOr<RivalPoint> MeasureOne(const std::string& label, const RivalRequest& rival, const RivalRun& run,
                                        const BenchSettings& settings) {
    const ProgressLine line(
        fmt::format("{}, {}, {}", label, rival.name, Counted(static_cast<uint64_t>(run.workers), "worker")),
        ProgressLine::Unit::kItems);
    return MeasureRival(rival, run, settings);
  }

  absl::Status RunEpochs() {
    constexpr uint64_t kEpochs = 3;
    ASSIGN_OR_RETURN(const std::string uri, Data(request_.samples, kSyntheticShardBytes));
    const std::string cache = flags_.cache.empty() ? place_.folder->path() + "/disk" : flags_.cache;
    ASSIGN_OR_RETURN(report_.epochs,
                     Measured("cache, without a cache", request_.settings,
                              [&](const BenchSettings& with) { return MeasureEpochs(uri, with, kEpochs, ""); }));
    ASSIGN_OR_RETURN(report_.cached_epochs,
                     Measured("cache, with a cache", request_.settings,
                              [&](const BenchSettings& with) { return MeasureEpochs(uri, with, kEpochs, cache); }));
    return RunEpochsOfObjects(kEpochs);
  }

  /// Over raw objects at random, each of which is a request, beside others that can keep them on the local disk.
  absl::Status RunEpochsOfObjects(uint64_t epochs) {
    if (request_.curve_workers.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::string uri, Data(request_.samples, kAsObjects));
    BenchSettings settings = request_.settings;
    settings.loader.shuffle = Shuffle::kGlobal;
    for (const bool keep : {false, true}) {
      const std::string folder = keep ? place_.folder->path() + "/objects" : "";
      RivalEpochs ours{.name = "millrace", .kept = keep, .workers = 1};
      ASSIGN_OR_RETURN(ours.epochs, Measured("cache, raw objects", settings, [&](const BenchSettings& with) {
                         return MeasureEpochs(uri, with, epochs, folder);
                       }));
      report_.object_epochs.push_back(std::move(ours));
    }
    RivalRun run = CurveRun(uri, "raw");
    run.ours.pixels = rival_run_.ours.pixels;
    run.workers =
        *std::next(request_.curve_workers.begin(), static_cast<std::ptrdiff_t>(request_.curve_workers.size() / 2));
    for (const char* const name : kRivalsThatKeep) {
      if (!IsAsked(name)) continue;
      for (const bool keep : {false, true}) {
        const ProgressLine line(fmt::format("cache, {}", name), ProgressLine::Unit::kItems);
        ASSIGN_OR_RETURN(report_.object_epochs.emplace_back(),
                         MeasureRivalEpochs({.name = name}, run, settings, epochs, keep));
        if (!report_.object_epochs.back().left_out.empty()) break;
      }
    }
    return Remove(uri);
  }

  absl::Status RunShards() {
    const uint64_t least = flags_.quick ? kMiB : 4 * kMiB;
    const uint64_t most = 64 * least;
    // The data are at least two of the largest shards, unless the user sets another size.
    const uint64_t samples = flags_.quick || flags_.samples > 0
                                 ? request_.samples
                                 : std::max(request_.samples, 2 * most / SyntheticShards{}.image_bytes + 1);
    for (uint64_t bytes = least; bytes <= most; bytes *= 4) {
      ASSIGN_OR_RETURN(const std::string uri, Data(samples, bytes));
      BenchSettings settings = request_.settings;
      settings.loader.shuffle = Shuffle::kNone;
      ASSIGN_OR_RETURN(BenchPoint point, Measured(fmt::format("shards, {}", FormatSize(bytes)), settings,
                                                  [&](const BenchSettings& with) { return MeasureRate(uri, with); }));
      report_.shards.emplace_back(bytes, std::move(point));
      RETURN_IF_ERROR(RunRivalsOfShards(uri, bytes));
      if (samples != request_.samples || bytes != kSyntheticShardBytes) RETURN_IF_ERROR(Remove(uri));
    }
    return absl::OkStatus();
  }

  /// Removes data that nothing else reads, since a server has them in memory.
  absl::Status Remove(const std::string& uri) {
    Runtime runtime;
    Stores stores(runtime);
    ASSIGN_OR_RETURN(const Location location, stores.Open(uri));
    BulkJob job({.stop = stop_});
    RETURN_IF_ERROR(ForEachObject(
        *location.store, AsFolder(location.prefix),
        [&](const ObjectInfo& object) { return job.Remove(*location.store, object); }, stop_));
    const BulkReport report = job.Finish().removed;
    if (!report.failures.empty()) return report.failures.begin()->second;
    made_.erase(uri);
    return absl::OkStatus();
  }

  absl::Status RunFirstBatch() {
    std::set<uint64_t> sizes = {request_.samples};
    if (flags_.synthetic) sizes.insert({std::max<uint64_t>(1, request_.samples / 4), (request_.samples + 1) / 2});
    for (const uint64_t samples : sizes) {
      ASSIGN_OR_RETURN(const std::string uri, Data(samples, kSyntheticShardBytes));
      ASSIGN_OR_RETURN(report_.first_batch.emplace_back(),
                       Measured("first-batch", request_.settings,
                                [&](const BenchSettings& with) { return MeasureFirstBatch(uri, with); }));
      if (flags_.synthetic && !flags_.quick) RETURN_IF_ERROR(RunDownload(uri, samples));
    }
    return absl::OkStatus();
  }

  /// Measures the wait of a training that begins when all data are files.
  absl::Status RunDownload(const std::string& uri, uint64_t samples) {
    const ProgressLine line("first-batch, download", ProgressLine::Unit::kItems);
    ASSIGN_OR_RETURN(const CopyTrial copy, TryCopy(uri, request_.settings, UINT64_MAX));
    if (!copy.whole || copy.bytes == 0) return absl::OkStatus();  // there is no room for it, or it takes too long
    const auto seconds = [&](double rate) { return static_cast<double>(copy.bytes) / rate; };
    const Spread& rate = copy.bytes_per_second;
    report_.downloads.emplace_back(
        samples, Spread{.median = seconds(rate.median), .least = seconds(rate.most), .most = seconds(rate.least)});
    return absl::OkStatus();
  }

  absl::Status RunResume() {
    ASSIGN_OR_RETURN(const std::string uri, Data(request_.samples, kSyntheticShardBytes));
    ASSIGN_OR_RETURN(report_.resume, Measured("resume", request_.settings,
                                              [&](const BenchSettings& with) { return MeasureResume(uri, with); }));
    return absl::OkStatus();
  }

  absl::Status RunRivals() {
    const BenchSettings& settings = request_.settings;
    ASSIGN_OR_RETURN(report_.beside_rivals, Measured("--rival, millrace", settings, [&](const BenchSettings& with) {
                       return MeasureFirstBatch(rival_run_.uri, with);
                     }));
    for (RivalRequest rival : request_.rivals) {
      rival_run_.copies = flags_.synthetic ? place_.root + "/copies" : "";
      for (const int workers : request_.rival_workers) {
        rival_run_.workers = workers;
        ASSIGN_OR_RETURN(RivalPoint point, MeasureOne("--rival", rival, rival_run_, settings));
        report_.rivals.push_back(point);
        if (!point.left_out.empty()) break;
        rival.uri = point.uri;      // of its copy, if one was made
        rival_run_.copies.clear();  // it needs no other one
      }
    }
    return absl::OkStatus();
  }

  /// Runs before all else: data that rivals cannot be compared on are refused before hours of measuring.
  absl::Status PrepareRivals() {
    constexpr uint64_t kComparedImages = 2000;
    ASSIGN_OR_RETURN(scratch_, TemporaryFolder::Make());
    rival_run_ = {.environments = flags_.rival_environments};
    rival_run_.scratch = scratch_->path();
    if (rival_run_.environments.empty()) {
      rival_run_.environments = DefaultCacheFolder() + "/rivals";
      RETURN_IF_ERROR(CheckNotOfAnotherUser(rival_run_.environments));  // programs in it are run
    }
    ASSIGN_OR_RETURN(rival_run_.uri, Data(request_.samples, kSyntheticShardBytes));
    ASSIGN_OR_RETURN(rival_run_.ours, MeasureOwnImages(rival_run_.uri, request_.settings, kComparedImages));
    return absl::OkStatus();
  }

  /// The last one: from here on the stores are those of the other server.
  absl::Status RunStorm() {
    BenchReport::Storm storm{.faults = StormFaults()};
    const auto epoch = [&](const char* label) -> absl::StatusOr<EpochCost> {
      ASSIGN_OR_RETURN(const std::string uri, Data(request_.samples, kSyntheticShardBytes));
      return Measured(label, request_.settings, [&](const BenchSettings& with) { return MeasureEpoch(uri, with); });
    };
    ASSIGN_OR_RETURN(storm.calm, epoch("faults, calm"));
    place_.stormy->UseForAllStores();
    made_.clear();
    ASSIGN_OR_RETURN(storm.rough, epoch("faults, storm"));
    report_.storm = std::move(storm);
    return absl::OkStatus();
  }

  const BenchFlags& flags_;
  BenchRequest request_;
  const BenchPlace& place_;
  const std::stop_token stop_;
  std::set<std::string> made_;
  std::unique_ptr<TemporaryFolder> scratch_;  // of others
  RivalRun rival_run_;
  BenchReport report_;
};

}  // namespace

absl::StatusOr<BenchPlace> MakeBenchPlace(const BenchFlags& flags, const BenchRequest& request) {
  BenchPlace place;
  if (!flags.synthetic) return place;
  if (flags.store == "devstore") {
    ASSIGN_OR_RETURN(place.server, LocalServer::Start(flags.first_byte_ms));
    if (request.scenarios.contains("faults")) {
      ASSIGN_OR_RETURN(place.stormy, LocalServer::Start(flags.first_byte_ms, StormFaults()));
    }
    place.server->UseForAllStores();
    place.root = "s3://bench";
  }
  ASSIGN_OR_RETURN(place.folder, TemporaryFolder::Make());
  if (flags.store == "folder") place.root = place.folder->path() + "/data";
  return place;
}

absl::StatusOr<BenchReport> RunBench(const BenchFlags& flags, BenchRequest request, const BenchPlace& place,
                                     std::stop_token stop) {
  BenchRun run(flags, std::move(request), place, std::move(stop));
  RETURN_IF_ERROR(run.Run());
  return run.TakeReport();
}

}  // namespace millrace::cli
