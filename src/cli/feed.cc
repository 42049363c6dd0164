#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/atomic_file.h"
#include "base/size.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "pipeline/loader.h"

namespace millrace::cli {

namespace {

using SteadyClock = std::chrono::steady_clock;

struct FeedFlags {
  std::string uri;
  uint64_t batch = 128;
  int size = 224;
  int channels = 3;
  bool augment = false;
  std::string dtype = "u8";
  std::string layout = "nhwc";
  std::string image_field;
  std::string label_field;
  std::string label_kind = "int";
  int threads = 0;
  int io_threads = 1;
  std::string memory = "512MiB";
  std::string shuffle = "window";
  uint64_t seed = 0;
  uint64_t epochs = 1;
  uint64_t rank = 0;
  uint64_t world = 1;
  std::string last = "pad";
  uint64_t stop_after = 0;
  std::optional<std::string> resume;
  std::string state;
  std::string digest_of = "raw";
  std::string bad_samples = "fail";
  bool json = false;
};

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Peak resident bytes of this program. getrusage would report that of the process that started it, where that was
// larger.
uint64_t MaxRssBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  }
  return 0;
}

double Seconds(SteadyClock::time_point from, SteadyClock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

absl::StatusOr<LoaderOptions> ToOptions(const FeedFlags& flags) {
  LoaderOptions options;
  options.image.height = options.image.width = flags.size;
  options.image.channels = flags.channels;
  options.image.augment = flags.augment;
  options.image.dtype = flags.dtype == "f32" ? DType::kF32 : DType::kU8;
  options.image.layout = flags.layout == "nchw" ? Layout::kNchw : Layout::kNhwc;
  options.image_field = flags.image_field;
  if (!flags.label_field.empty()) {
    ASSIGN_OR_RETURN(const LabelSpec spec, LabelSpec::Parse(flags.label_kind));
    options.label = LabelOptions{flags.label_field, spec};
  }
  options.bad_samples = flags.bad_samples == "replace" ? BadSamples::kReplace : BadSamples::kFail;
  options.batch = flags.batch;
  ASSIGN_OR_RETURN(options.shuffle, ParseShuffle(flags.shuffle));
  options.seed = flags.seed;
  options.epochs = flags.epochs;
  options.rank = flags.rank;
  options.world = flags.world;
  ASSIGN_OR_RETURN(options.last, ParseLastBatch(flags.last));
  if (flags.resume) {
    ASSIGN_OR_RETURN(options.start, Position::Parse(*flags.resume));
  }
  const absl::StatusOr<uint64_t> memory = ParseSize(flags.memory);
  if (!memory.ok()) return Annotate(memory.status(), "--memory");
  options.memory_bytes = *memory;
  options.digest = flags.digest_of == "decoded" ? DigestOf::kDecoded : DigestOf::kRaw;
  return options;
}

nlohmann::ordered_json StateOf(const LoaderReport& report) {
  return {{"position", report.position.ToString()}, {"samples", report.samples}, {"digest", report.digest.Hex()}};
}

// Times and sizes of one run, beside what the loader reports.
struct FeedResult {
  double open_seconds = 0;
  double seconds = 0;
  double first_batch_seconds = 0;
  double cpu_seconds = 0;
  uint64_t batches = 0;
  LoaderReport report;
};

nlohmann::ordered_json ToJson(const FeedResult& result, const RequestCounters& counters) {
  nlohmann::ordered_json stalls = nlohmann::ordered_json::object();
  for (size_t i = 0; i < kStallCauses; ++i) {
    stalls[std::string(StallCauseName(static_cast<StallCause>(i)))] = result.report.stalls.seconds[i];
  }
  nlohmann::ordered_json quarantine = nlohmann::ordered_json::array();
  for (const QuarantinedSample& bad : result.report.quarantine) {
    quarantine.push_back(
        {{"sample", bad.uri}, {"reason", bad.reason}, {"replacement", bad.replacement}, {"epoch", bad.epoch}});
  }
  return {{"samples", result.report.samples},
          {"seconds", result.seconds},
          {"open_seconds", result.open_seconds},
          {"first_batch_seconds", result.first_batch_seconds},
          {"samples_per_second", result.seconds > 0 ? static_cast<double>(result.report.samples) / result.seconds : 0},
          {"cpu_seconds", result.cpu_seconds},
          {"max_rss_bytes", MaxRssBytes()},
          {"digest", result.report.digest.Hex()},
          {"position", result.report.position.ToString()},
          {"stalls", std::move(stalls)},
          {"bottleneck", std::string(result.report.stalls.bottleneck())},
          {"requests",
           {{"GET", counters.get.load()},
            {"HEAD", counters.head.load()},
            {"PUT", counters.put.load()},
            {"LIST", counters.list.load()},
            {"DELETE", counters.del.load()}}},
          {"bytes_read", counters.bytes_read.load()},
          {"batches", result.batches},
          {"quarantined", result.report.quarantined},
          {"quarantine", std::move(quarantine)}};
}

void PrintSummary(const FeedFlags& flags, const FeedResult& result, const RequestCounters& counters) {
  const LoaderReport& report = result.report;
  const double samples = static_cast<double>(report.samples);
  std::printf("%llu samples in %.2f s: %.0f samples/s, first batch after %.3f s, opening took %.2f s\n",
              static_cast<unsigned long long>(report.samples), result.seconds,
              result.seconds > 0 ? samples / result.seconds : 0, result.first_batch_seconds, result.open_seconds);
  std::printf("CPU: %.2f s, %.3f s per 1,000 samples; peak memory %s of a budget of %s plus the program\n",
              result.cpu_seconds, samples > 0 ? 1000 * result.cpu_seconds / samples : 0,
              FormatSize(MaxRssBytes()).c_str(), flags.memory.c_str());
  std::printf("Read: %s in %llu GET requests, %llu of them repeated\n", FormatSize(counters.bytes_read).c_str(),
              static_cast<unsigned long long>(counters.get.load()),
              static_cast<unsigned long long>(counters.retries.load()));
  std::printf("The consumer waited %.2f s of %.2f s:", report.stalls.waited(), result.seconds);
  for (size_t i = 0; i < kStallCauses; ++i) {
    if (report.stalls.seconds[i] < 0.0005) continue;
    std::printf(" %s %.3f s", std::string(StallCauseName(static_cast<StallCause>(i))).c_str(),
                report.stalls.seconds[i]);
  }
  std::printf("\nBottleneck: %s\n", std::string(report.stalls.bottleneck()).c_str());
  if (report.quarantined > 0) {
    std::printf("Replaced %llu damaged samples; the first: %s: %s\n",
                static_cast<unsigned long long>(report.quarantined), report.quarantine.front().uri.c_str(),
                report.quarantine.front().reason.c_str());
  }
  std::printf("Digest: %s\nPosition: %s\n", report.digest.Hex().c_str(), report.position.ToString().c_str());
}

// Writes `--state`: at most ten times a second, and at the end.
class StateFile {
 public:
  explicit StateFile(std::string path) : path_(std::move(path)) {}

  absl::Status Write(const LoaderReport& report) {
    if (path_.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(WriteFileAtomically(path_, StateOf(report).dump() + "\n"));
    written_ = SteadyClock::now();
    return absl::OkStatus();
  }
  bool due() const { return !path_.empty() && SteadyClock::now() - written_ >= std::chrono::milliseconds(100); }

 private:
  const std::string path_;
  SteadyClock::time_point written_{};
};

absl::Status Drain(Loader& loader, const FeedFlags& flags, SteadyClock::time_point begin, FeedResult* result) {
  const uint64_t steps = loader.steps_per_epoch() * flags.epochs;
  ProgressLine progress("feeding " + flags.uri, ProgressLine::Unit::kItems);
  StateFile state(flags.state);
  absl::Status status;
  for (;;) {
    absl::StatusOr<std::optional<Batch>> batch = loader.Next();
    status = batch.status();
    if (!status.ok() || !*batch) break;
    if (result->batches++ == 0) result->first_batch_seconds = Seconds(begin, SteadyClock::now());
    const LoaderReport report = loader.report();
    progress.Update(report.samples, flags.resume ? 0 : steps * flags.batch);
    if (state.due()) RETURN_IF_ERROR(state.Write(report));
    if (flags.stop_after > 0 && report.samples >= flags.stop_after) break;
  }
  // Also after a failure: what was received before it need not be fed again.
  absl::Status kept = state.Write(loader.report());
  return status.ok() ? kept : status;
}

absl::Status Feed(const FeedFlags& flags) {
  ASSIGN_OR_RETURN(LoaderOptions options, ToOptions(flags));
  RuntimeOptions runtime_options{.io_threads = flags.io_threads, .cpu_threads = flags.threads};
  runtime_options.memory_bytes = options.memory_bytes;
  Runtime runtime(runtime_options);
  Stores stores(runtime);
  FeedResult result;
  const SteadyClock::time_point opening = SteadyClock::now();
  std::unique_ptr<Dataset> dataset;
  {
    ProgressLine progress("indexing " + flags.uri, ProgressLine::Unit::kBytes);
    OpenOptions open;
    open.progress = [&](uint64_t done, uint64_t total) { progress.Update(done, total); };
    ASSIGN_OR_RETURN(dataset, Dataset::Open(runtime, stores, flags.uri, open));
  }
  const SteadyClock::time_point begin = SteadyClock::now();
  const double cpu_before = CpuSeconds();
  result.open_seconds = Seconds(opening, begin);
  ASSIGN_OR_RETURN(const std::unique_ptr<Loader> loader, Loader::Create(runtime, *dataset, options));
  RETURN_IF_ERROR(Drain(*loader, flags, begin, &result));
  result.seconds = Seconds(begin, SteadyClock::now());
  result.cpu_seconds = CpuSeconds() - cpu_before;
  result.report = loader->report();
  const RequestCounters& counters = dataset->store().counters();
  if (flags.json) {
    std::cout << ToJson(result, counters).dump() << std::endl;
  } else {
    PrintSummary(flags, result, counters);
  }
  return absl::OkStatus();
}

}  // namespace

void AddFeed(CLI::App& app, Action* run) {
  CLI::App* feed = app.add_subcommand("feed", "Run the input pipeline without a model: rates, waits, digest");
  auto flags = std::make_shared<FeedFlags>();
  feed->add_option("uri", flags->uri, "The data set: a prefix with tar shards or raw objects")->required();
  feed->add_option("--batch", flags->batch, "Samples of a batch, per rank")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  feed->add_option("--size", flags->size, "Height and width of the images")
      ->capture_default_str()
      ->check(CLI::Range(1, 16384));
  feed->add_option("--channels", flags->channels, "3 for RGB, 1 for grey")
      ->capture_default_str()
      ->check(CLI::IsMember({1, 3}));
  feed->add_flag("--augment", flags->augment,
                 "Random resized crop and flip, instead of resizing and cropping the centre");
  feed->add_option("--dtype", flags->dtype, "u8 or f32")->capture_default_str()->check(CLI::IsMember({"u8", "f32"}));
  feed->add_option("--layout", flags->layout, "nhwc or nchw")
      ->capture_default_str()
      ->check(CLI::IsMember({"nhwc", "nchw"}));
  feed->add_option("--image-field", flags->image_field, "The field to decode, when several are images");
  feed->add_option("--label-field", flags->label_field, "The field that holds the label [cls where there is one]");
  feed->add_option("--label-kind", flags->label_kind,
                   "int, text, or json:PATH and json-text:PATH for a whole number or a string in a JSON field")
      ->capture_default_str();
  feed->add_option("--threads", flags->threads, "CPU threads that decode [all CPUs]")->check(CLI::Range(0, 1024));
  feed->add_option("--io-threads", flags->io_threads, "Network threads")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  feed->add_option("--memory", flags->memory, "Budget for fetched bytes and batches")->capture_default_str();
  feed->add_option("--shuffle", flags->shuffle, "none, global or window")->capture_default_str();
  feed->add_option("--seed", flags->seed, "Of order and augmentation")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  feed->add_option("--epochs", flags->epochs, "Passes over the data")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  feed->add_option("--rank", flags->rank, "This consumer's number, from 0")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  feed->add_option("--world", flags->world, "How many consumers share the data")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  feed->add_option("--last", flags->last, "The last, short batch: pad, drop or wrap")->capture_default_str();
  feed->add_option("--stop-after", flags->stop_after, "Stop at the batch that reaches this many samples of this rank")
      ->check(CLI::NonNegativeNumber);
  feed->add_option("--resume", flags->resume, "Continue at this position");
  feed->add_option("--state", flags->state, "Keep position, samples and digest in this file");
  feed->add_option("--digest-of", flags->digest_of, "raw: stored bytes; decoded: pixels in place of the image")
      ->capture_default_str()
      ->check(CLI::IsMember({"raw", "decoded"}));
  feed->add_option("--bad-samples", flags->bad_samples, "fail, or replace and report them")
      ->capture_default_str()
      ->check(CLI::IsMember({"fail", "replace"}));
  feed->add_flag("--json", flags->json, "One JSON object on stdout");
  feed->footer(
      "Examples:\n"
      "  millrace feed s3://bucket/train --batch 256 --augment\n"
      "  millrace feed /data/train --shuffle none --threads 8 --json\n"
      "  millrace feed s3://bucket/train --state run.json      # interrupted ...\n"
      "  millrace feed s3://bucket/train --resume \"$(jq -r .position run.json)\"");
  feed->callback([flags, run] {
    *run = [flags] {
      const absl::Status status = Feed(*flags);
      return status.ok() ? 0 : Fail("feed", status);
    };
  });
}

}  // namespace millrace::cli
