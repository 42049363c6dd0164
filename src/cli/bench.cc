#include "diagnose/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include "base/atomic_file.h"
#include "base/counted.h"
#include "base/size.h"
#include "cli/bench_compare_command.h"
#include "cli/bench_home.h"
#include "cli/bench_page.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/usage.h"
#include "diagnose/rivals.h"
#include "diagnose/synthetic_shards.h"
#include "diagnose/temporary_folder.h"
#include "net/runtime.h"
#include "transfer/artifact.h"
#include "transfer/bulk_job.h"
#include "transfer/key_pattern.h"

namespace millrace::cli {

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kSyntheticShardBytes = 64 * kMiB;
constexpr uint64_t kAsObjects = 0;  // in place of the bytes of a shard

struct BenchFlags {
  std::string uri;
  bool synthetic = false;
  std::vector<std::string> scenarios = {"d"};
  bool quick = false;
  std::string html;
  std::string json;
  std::optional<uint64_t> repeats;
  double seconds = 0;
  std::string threads;
  int io_threads = 1;
  uint64_t batch = 128;
  int size = 224;
  std::string shuffle = "window";
  std::string memory = "512MiB";
  std::string prices;
  uint64_t samples = 0;
  uint64_t first_byte_ms = 30;
  double step_ms = 0;
  std::string cache;
  std::string store = "devstore";
  std::vector<std::string> rivals;
  std::string rival_workers;
  std::string rival_environments;
};

/// What the flags ask for, checked as far as that needs no data.
struct BenchRequest {
  std::set<std::string> scenarios;
  std::set<int> threads;
  BenchSettings settings;
  PriceList prices;
  uint64_t samples = 0;  // of a synthetic data set
  std::vector<RivalRequest> rivals;
  std::set<int> rival_workers;
};

absl::Status Usage(const std::string& message) {
  return AsUsage(absl::InvalidArgumentError(message));
}

/// "1,2,4", in ascending order, each once.
absl::StatusOr<std::set<int>> ParseCounts(std::string_view option, const std::string& text) {
  std::set<int> counts;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    int n = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, n);
    if (error != std::errc() || stop != text.data() + end || n < 1 || n > 1024) {
      return Usage(
          fmt::format("{} takes whole numbers from 1 to 1024 with commas between them, not '{}'", option, text));
    }
    counts.insert(n);
    at = end + 1;
  }
  return counts;
}

std::set<int> UsualThreads(bool quick) {
  const int cpus = UsableCpus();
  std::set<int> threads = {1, cpus};
  for (int n = 2; n < cpus && !quick; n *= 2) threads.insert(n);
  return threads;
}

// A folder that does not exist is more likely a slip than a wish, and the run is long.
absl::Status CheckOutput(std::string_view option, const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (path.empty() || folder.empty() || std::filesystem::is_directory(folder, error)) return absl::OkStatus();
  return absl::NotFoundError(fmt::format("{} {}: there is no folder {}; make it first", option, path, folder.string()));
}

absl::Status CheckBenchFlags(const BenchFlags& flags) {
  if (flags.synthetic == !flags.uri.empty()) {
    return Usage(flags.synthetic ? "--synthetic makes its own data: leave out the URI"
                                 : "name the URI of a data set, or --synthetic");
  }
  if (!flags.synthetic) RETURN_IF_ERROR(CheckUri(flags.uri));
  RETURN_IF_ERROR(CheckOutput("--html", flags.html));
  return CheckOutput("--json", flags.json == "-" ? "" : flags.json);
}

absl::StatusOr<BenchRequest> ToRequest(const BenchFlags& flags) {
  RETURN_IF_ERROR(CheckBenchFlags(flags));
  BenchRequest request;
  for (const std::string& scenario : flags.scenarios) {
    if (scenario == "all") {
      request.scenarios.insert({"a", "d", "e", "f"});
      if (flags.synthetic || !flags.cache.empty()) request.scenarios.insert("b");
      if (flags.synthetic) request.scenarios.insert("c");
      if (flags.synthetic && flags.store == "devstore") request.scenarios.insert("g");
    } else {
      request.scenarios.insert(scenario);
    }
  }
  if (request.scenarios.contains("c") && !flags.synthetic) {
    return Usage("--scenario c compares data sets that differ in the size of their shards: it needs --synthetic");
  }
  if (request.scenarios.contains("b") && !flags.synthetic && flags.cache.empty()) {
    return Usage("--scenario b keeps what it reads on the local disk: say where by --cache, or use --synthetic");
  }
  if (request.scenarios.contains("g") && (!flags.synthetic || flags.store != "devstore")) {
    return Usage("--scenario g needs a store that fails on purpose: --synthetic with --store devstore");
  }
  ASSIGN_OR_RETURN(request.threads, ParseCounts("--threads", flags.threads));
  if (request.threads.empty()) request.threads = UsualThreads(flags.quick);
  ASSIGN_OR_RETURN(request.rival_workers, ParseCounts("--rival-workers", flags.rival_workers));
  if (request.rival_workers.empty()) request.rival_workers = {UsableCpus()};
  ASSIGN_OR_RETURN(request.rivals, AsUsage(ParseRivals(flags.rivals)));
  if (!request.rivals.empty()) request.scenarios.insert("d");  // which they stand beside
  ASSIGN_OR_RETURN(request.prices, AsUsage(ReadPrices(flags.prices)));
  BenchSettings& settings = request.settings;
  settings.io_threads = flags.io_threads;
  settings.warm_up_seconds = flags.quick ? 1 : 3;
  settings.window_seconds = flags.seconds > 0 ? flags.seconds : (flags.quick ? 2 : 6);
  settings.windows = static_cast<int>(flags.repeats.value_or(flags.quick ? 3 : 5));
  if (!(flags.seconds >= 0 && flags.seconds <= 86'400)) {
    return Usage("--seconds takes the time of a repeat in seconds, up to 86,400");
  }
  if (flags.seconds > 0) settings.warm_up_seconds = std::min(settings.warm_up_seconds, flags.seconds);
  if (!(flags.step_ms >= 0 && flags.step_ms <= 600'000)) {
    return Usage("--step-ms takes a time in milliseconds, 0 to 600,000");
  }
  settings.step_seconds = flags.step_ms / 1000;
  settings.loader.batch = flags.batch;
  settings.loader.image.height = settings.loader.image.width = flags.size;
  settings.loader.image.augment = true;
  settings.loader.allow_arrays = true;
  ASSIGN_OR_RETURN(settings.loader.shuffle, ParseShuffle(flags.shuffle));
  const absl::StatusOr<uint64_t> memory = ParseSize(flags.memory);
  if (!memory.ok()) return AsUsage(Annotate(memory.status(), "--memory"));
  settings.loader.memory_bytes = *memory;
  request.samples = flags.samples > 0 ? flags.samples : (flags.quick ? 1000 : 2000);
  return request;
}

/// Where the data are, for the length of a run.
struct BenchPlace {
  std::unique_ptr<LocalServer> server;
  std::unique_ptr<LocalServer> stormy;  // for scenario g
  std::unique_ptr<TemporaryFolder> folder;
  std::string root;  // of synthetic data sets: a URI
};

// What a store does on a bad day, all at once.
const std::vector<std::string>& StormFaults() {
  static const auto* const faults = new std::vector<std::string>{
      "GET bench/* status=503 p=0.2", "GET bench/* reset=20000 p=0.03", "GET bench/* cut=20000 p=0.03",
      "GET bench/* flip=20000 p=0.01", "GET bench/* delay-ms=1000 p=0.02"};
  return *faults;
}

absl::StatusOr<BenchPlace> MakePlace(const BenchFlags& flags, const BenchRequest& request) {
  BenchPlace place;
  if (!flags.synthetic) return place;
  if (flags.store == "devstore") {
    ASSIGN_OR_RETURN(place.server, LocalServer::Start(flags.first_byte_ms));
    if (request.scenarios.contains("g")) {
      ASSIGN_OR_RETURN(place.stormy, LocalServer::Start(flags.first_byte_ms, StormFaults()));
    }
    place.server->UseForAllStores();
    place.root = "s3://bench";
  }
  ASSIGN_OR_RETURN(place.folder, TemporaryFolder::Make());
  if (flags.store == "folder") place.root = place.folder->path() + "/data";
  return place;
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
    if (request_.scenarios.contains("d")) RETURN_IF_ERROR(RunRate());
    if (request_.scenarios.contains("a")) RETURN_IF_ERROR(RunOrders());
    if (request_.scenarios.contains("b")) RETURN_IF_ERROR(RunEpochs());
    if (request_.scenarios.contains("c")) RETURN_IF_ERROR(RunShards());
    if (request_.scenarios.contains("e")) RETURN_IF_ERROR(RunFirstBatch());
    if (request_.scenarios.contains("f")) RETURN_IF_ERROR(RunResume());
    if (!request_.rivals.empty()) RETURN_IF_ERROR(RunRivals());
    if (request_.scenarios.contains("g")) RETURN_IF_ERROR(RunStorm());
    return absl::OkStatus();
  }

  const BenchReport& report() const { return report_; }

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
                       Measured(fmt::format("d, {} threads", threads), settings,
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
                         Measured(fmt::format("a, {}, {}, repeat {} of {}", OrderName(order.shuffle, order.raw),
                                              Counted(static_cast<uint64_t>(threads), "thread"), round + 1,
                                              request_.settings.windows),
                                  settings, [&](const BenchSettings& with) { return MeasureRate(order.uri, with); }));
        AddRepeats(std::move(point), &order.points.back());
      }
    }
    for (Order& order : orders) {
      for (BenchPoint& point : order.points) report_.orders.push_back({order.shuffle, order.raw, std::move(point)});
    }
    return flags_.synthetic ? Remove(orders.back().uri) : absl::OkStatus();
  }

  absl::Status RunEpochs() {
    constexpr uint64_t kEpochs = 3;
    ASSIGN_OR_RETURN(const std::string uri, Data(request_.samples, kSyntheticShardBytes));
    const std::string cache = flags_.cache.empty() ? place_.folder->path() + "/disk" : flags_.cache;
    ASSIGN_OR_RETURN(report_.epochs, Measured("b, without a cache", request_.settings, [&](const BenchSettings& with) {
                       return MeasureEpochs(uri, with, kEpochs, "");
                     }));
    ASSIGN_OR_RETURN(report_.cached_epochs,
                     Measured("b, with a cache", request_.settings,
                              [&](const BenchSettings& with) { return MeasureEpochs(uri, with, kEpochs, cache); }));
    return absl::OkStatus();
  }

  absl::Status RunShards() {
    const uint64_t least = flags_.quick ? kMiB : 4 * kMiB;
    const uint64_t most = 64 * least;
    // At least two of the largest shards, unless the user knows better.
    const uint64_t samples = flags_.quick || flags_.samples > 0
                                 ? request_.samples
                                 : std::max(request_.samples, 2 * most / SyntheticShards{}.image_bytes + 1);
    for (uint64_t bytes = least; bytes <= most; bytes *= 4) {
      ASSIGN_OR_RETURN(const std::string uri, Data(samples, bytes));
      BenchSettings settings = request_.settings;
      settings.loader.shuffle = Shuffle::kNone;
      ASSIGN_OR_RETURN(BenchPoint point, Measured(fmt::format("c, {}", FormatSize(bytes)), settings,
                                                  [&](const BenchSettings& with) { return MeasureRate(uri, with); }));
      report_.shards.emplace_back(bytes, std::move(point));
      if (samples != request_.samples || bytes != kSyntheticShardBytes) RETURN_IF_ERROR(Remove(uri));
    }
    return absl::OkStatus();
  }

  /// Data that nothing else reads: a server has them in memory.
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
      ASSIGN_OR_RETURN(
          report_.first_batch.emplace_back(),
          Measured("e", request_.settings, [&](const BenchSettings& with) { return MeasureFirstBatch(uri, with); }));
    }
    return absl::OkStatus();
  }

  absl::Status RunResume() {
    ASSIGN_OR_RETURN(const std::string uri, Data(request_.samples, kSyntheticShardBytes));
    ASSIGN_OR_RETURN(report_.resume, Measured("f", request_.settings,
                                              [&](const BenchSettings& with) { return MeasureResume(uri, with); }));
    return absl::OkStatus();
  }

  absl::Status RunRivals() {
    ASSIGN_OR_RETURN(const std::unique_ptr<TemporaryFolder> scratch, TemporaryFolder::Make());
    rival_run_.scratch = scratch->path();
    const BenchSettings& settings = request_.settings;
    ASSIGN_OR_RETURN(report_.beside_rivals, Measured("--rival, millrace", settings, [&](const BenchSettings& with) {
                       return MeasureFirstBatch(rival_run_.uri, with);
                     }));
    for (RivalRequest rival : request_.rivals) {
      rival_run_.copies = flags_.synthetic ? place_.root + "/copies" : "";
      for (const int workers : request_.rival_workers) {
        ProgressLine line(fmt::format("--rival {}, {}", rival.name, Counted(static_cast<uint64_t>(workers), "worker")),
                          ProgressLine::Unit::kItems);
        rival_run_.workers = workers;
        ASSIGN_OR_RETURN(RivalPoint point, MeasureRival(rival, rival_run_, settings));
        report_.rivals.push_back(point);
        if (!point.left_out.empty()) break;
        rival.uri = point.uri;      // of its copy, if one was made
        rival_run_.copies.clear();  // it needs no other one
      }
    }
    return absl::OkStatus();
  }

  /// Before all else: data that rivals cannot be compared on are refused before hours of measuring.
  absl::Status PrepareRivals() {
    constexpr uint64_t kComparedImages = 2000;
    rival_run_ = {.environments = flags_.rival_environments};
    if (rival_run_.environments.empty()) rival_run_.environments = DefaultCacheFolder() + "/rivals";
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
    ASSIGN_OR_RETURN(storm.calm, epoch("g, calm"));
    place_.stormy->UseForAllStores();
    made_.clear();
    ASSIGN_OR_RETURN(storm.rough, epoch("g, storm"));
    report_.storm = std::move(storm);
    return absl::OkStatus();
  }

  const BenchFlags& flags_;
  BenchRequest request_;
  const BenchPlace& place_;
  const std::stop_token stop_;
  std::set<std::string> made_;
  RivalRun rival_run_;
  BenchReport report_;
};

absl::Status WriteReports(const BenchFlags& flags, const BenchReport& report) {
  if (!flags.html.empty()) RETURN_IF_ERROR(WriteFileAtomically(flags.html, BenchPage(report)));
  if (flags.json == "-") return WriteStdout(BenchJson(report));
  if (!flags.json.empty()) RETURN_IF_ERROR(WriteFileAtomically(flags.json, BenchJson(report)));
  std::string text = BenchText(report);
  if (!flags.html.empty()) text += fmt::format("Page: {}\n", flags.html);
  std::string shown;
  for (size_t at = 0; at < text.size();) {  // URIs may hold anything; lines stay lines
    const size_t end = std::min(text.find('\n', at), text.size());
    shown += Printable(std::string_view(text).substr(at, end - at)) + '\n';
    at = end + 1;
  }
  return WriteStdout(shown);
}

absl::Status Bench(const BenchFlags& flags) {
  ASSIGN_OR_RETURN(BenchRequest request, ToRequest(flags));
  CatchInterrupts();  // so that what is made here is removed
  ASSIGN_OR_RETURN(const BenchPlace place, MakePlace(flags, request));
  const InterruptStop interrupt;  // from here on there are threads
  BenchRun run(flags, std::move(request), place, interrupt.token());
  RETURN_IF_ERROR(run.Run());
  return WriteReports(flags, run.report());
}

void AddBenchOptions(Command bench, BenchFlags* flags) {
  const auto add = [bench](const char* name, auto* value, const char* what) {
    return bench.Add(name, value, what).ShowDefault();
  };
  bench.Add("uri", &flags->uri, "A data set: a bucket with a prefix, or a folder");
  bench.AddFlag("--synthetic", &flags->synthetic, "Make a data set, use it, and leave nothing behind");
  add("--scenario", &flags->scenarios,
      "d: maximum rate; a: sequential and random order; e: time to the first batch; f: resuming within an epoch; with "
      "--synthetic or --cache b: epochs with and without a cache; with --synthetic c: sequential reading against the "
      "size of shards, g: an epoch while the store fails; repeatable")
      .Words({"a", "b", "c", "d", "e", "f", "g", "all"})
      .OneValueEach();
  bench.AddFlag("--quick", &flags->quick, "Shorter repeats, and fewer of them");
  bench.Add("--html", &flags->html, "Write the report as a page that needs nothing else").Called("FILE");
  bench.Add("--json", &flags->json, "Write all figures as JSON; -: to stdout, instead of the text").Called("FILE");
  bench.Add("--repeats", &flags->repeats, "How often each setting is measured [5; 3 if --quick]").Number(1, 1000);
  bench.Add("--seconds", &flags->seconds, "Time of each repeat, at the least [6; 2 if --quick]");
  bench.Add("--threads", &flags->threads, "Numbers of decoding threads to try, for example 1,2,4 [up to all CPUs]");
  add("--io-threads", &flags->io_threads, "Network threads").Number(1, 64);
  add("--batch", &flags->batch, "Samples of a batch").Number(1);
  add("--size", &flags->size, "Height and width of the images").Number(1, 16384);
  add("--shuffle", &flags->shuffle, "Order of the samples in scenarios d and e").Words({"window", "global", "none"});
  add("--memory", &flags->memory, "Budget for fetched bytes and batches");
  bench.Add("--step-ms", &flags->step_ms, "A model in scenarios a, c and d: a pause so long after each batch [none]");
  bench.Add("--cache", &flags->cache, "Folder of the cache of scenario b; what is kept there stays [a temporary one]")
      .Called("DIR");
  bench.Add("--prices", &flags->prices, "A price list to use instead of the built-in one (docs/advise.md)")
      .Called("FILE");
  bench.Add("--samples", &flags->samples, "Images of a synthetic data set [2000; 1000 if --quick]")
      .Number(1, 10'000'000);
  add("--store", &flags->store, "Where a synthetic data set is: a local S3 server, or a temporary folder")
      .Words({"devstore", "folder"});
  bench
      .Add("--rival", &flags->rivals,
           "Loaders of others to measure beside Millrace, NAME or NAME=URI of the same data in their format, with "
           "commas "
           "between several: dataloader, s3torchconnector, webdataset, mosaicml, litdata, spdl, huggingface, tfdata, "
           "dali, "
           "ray, s3fs, rclone; all: each of them")
      .Called("NAME[=URI]")
      .OneValueEach();
  bench.Add("--rival-workers", &flags->rival_workers,
            "Numbers of worker processes, or threads that decode, to try of each of them, for example 2,8,32 [all "
            "CPUs]");
  bench
      .Add("--rival-environments", &flags->rival_environments,
           "Folder with an environment of Python for each of them, DIR/NAME [rivals in the cache folder]")
      .Called("DIR");
  add("--first-byte-ms", &flags->first_byte_ms, "Median time to the first byte of the server of --store devstore")
      .Number(0, 10'000);
}

}  // namespace

void AddBench(Command app) {
  const Command bench = app.AddCommand("bench", "Measure how fast samples can be had, and say what limits it");
  auto flags = std::make_shared<BenchFlags>();
  AddBenchOptions(bench, flags.get());
  AddBenchCompare(bench);
  bench.Footer(
      "Runs the input pipeline (fetch, decode, augment, batch) without a model. Each figure is a median of repeats, "
      "with "
      "the least and the most. The first line says what limits the pipeline. If the data set has no index, one is "
      "built "
      "first, as by every command. More: docs/bench.md\n\n"
      "Examples:\n"
      "  millrace bench --synthetic --quick --html report.html\n"
      "  millrace bench s3://bucket/train --html report.html --json after.json\n"
      "  millrace bench s3://bucket/train --threads 1,2,4,8 --scenario d --scenario e\n"
      "  millrace bench s3://bucket/train --rival dataloader,webdataset --html report.html\n"
      "  millrace bench compare before.json after.json");
  bench.Run([flags] {
    const absl::Status status = Bench(*flags);
    return status.ok() ? 0 : Fail("bench", HintAtS3(status, {flags->uri}));
  });
}

}  // namespace millrace::cli
