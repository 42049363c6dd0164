#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/process.h"
#include "cli/cache_option.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/feed_explain.h"
#include "cli/feed_report.h"
#include "cli/feed_source.h"
#include "cli/feed_tokens.h"
#include "cli/json_text.h"
#include "cli/metrics_option.h"
#include "cli/staged_advice.h"
#include "cli/usage.h"
#include "cli/workers_options.h"
#include "dataset/staged_dataset.h"
#include "pipeline/loader.h"
#include "pipeline/loader_facts.h"
#include "pipeline/loader_totals.h"
#include "pipeline/staged_loader.h"
#include "service/service_source.h"
#include "store/request_counts.h"

namespace millrace::cli {

namespace {

using SteadyClock = std::chrono::steady_clock;

// This is the longest wait of an interrupt.
constexpr std::chrono::milliseconds kFeedSlice{50};

struct FeedFlags {
  double outage_limit = kOutageLimitSeconds;
  std::string metrics_port;
  SourceFlags source;
  std::string tokens;
  LoaderOptions loader{.allow_arrays = true};
  int size = 224;
  std::string dtype = "u8";
  std::string layout = "nhwc";
  std::string label_field;
  std::string label_kind = "int";
  RuntimeOptions runtime;
  std::string memory = "512MiB";
  std::string shuffle = "window";
  std::string last = "pad";
  std::string start;  // "": as the listing and the position say
  std::optional<uint64_t> stop_after;
  std::optional<std::string> resume;
  std::string state;
  std::string digest_of = "raw";
  std::string bad_samples = "fail";
  CacheOption cache;
  WorkersFlags workers;
  bool explain = false;
  bool json = false;
};

absl::StatusOr<LoaderOptions> ToOptions(const FeedFlags& flags) {
  LoaderOptions options = flags.loader;
  options.image.height = options.image.width = flags.size;
  options.image.dtype = flags.dtype == "f32" ? DType::kF32 : DType::kU8;
  options.image.layout = flags.layout == "nchw" ? Layout::kNchw : Layout::kNhwc;
  if (!flags.label_field.empty()) {
    const absl::StatusOr<LabelSpec> spec = LabelSpec::Parse(flags.label_kind);
    if (!spec.ok()) return Annotate(spec.status(), "--label-kind");
    options.label = LabelOptions{flags.label_field, *spec};
  }
  options.bad_samples = flags.bad_samples == "replace" ? BadSamples::kReplace
                        : flags.bad_samples == "mask"  ? BadSamples::kMask
                                                       : BadSamples::kFail;
  ASSIGN_OR_RETURN(options.shuffle, ParseShuffle(flags.shuffle));
  ASSIGN_OR_RETURN(options.last, ParseLastBatch(flags.last));
  if (flags.resume) {
    const absl::StatusOr<Position> start = Position::Parse(*flags.resume);
    if (!start.ok()) return Annotate(start.status(), "--resume");
    options.start = *start;
  }
  ASSIGN_OR_RETURN(options.memory_bytes, TakeSizeOrZero("--memory", flags.memory));
  // These checks need no data; the samples of an epoch are not known yet.
  RETURN_IF_ERROR(options.image.Check());
  Batching batching;
  batching.samples = UINT64_MAX;
  batching.batch = options.batch;
  batching.rank = options.rank;
  batching.world = options.world;
  batching.last = options.last;
  RETURN_IF_ERROR(batching.Check());
  options.digest = flags.digest_of == "decoded" ? DigestOf::kDecoded : DigestOf::kRaw;
  return options;
}

// The bytes that a cache will have of the disk, or of memory; 0 if that is not known.
uint64_t CacheBytesOf(const RangeCacheOptions& options) {
  if (options.size_bytes > 0) return options.size_bytes;
  std::error_code error;
  std::filesystem::path folder = std::filesystem::absolute(options.folder, error);
  while (!std::filesystem::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error) return 0;
  const auto kept = static_cast<uint64_t>(options.free_share * static_cast<double>(space.capacity));
  return space.available > kept ? space.available - kept : 0;
}

JsonObject StateOf(const LoaderReport& report) {
  return {{"position", report.position.ToString()}, {"samples", report.samples}, {"digest", report.digest.Hex()}};
}

// Writes `--state`: at most ten times a second, and at the end.
class StateFile {
 public:
  explicit StateFile(std::string path) : path_(std::move(path)) {}

  absl::Status Write(const LoaderReport& report) {
    if (path_.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(WriteFileAtomically(path_, StateOf(report).Line()));
    written_ = SteadyClock::now();
    return absl::OkStatus();
  }
  bool due() const { return !path_.empty() && SteadyClock::now() - written_ >= std::chrono::milliseconds(100); }

 private:
  const std::string path_;
  SteadyClock::time_point written_{};
};

// Samples that this rank will get; 0 where a resumed run makes it hard to tell.
uint64_t ExpectedSamples(const LoaderOptions& options, const BatchSource& loader, std::optional<uint64_t> stop_after) {
  if (options.start) return 0;
  if (loader.shapes().size() > 1) return 0;  // buckets
  uint64_t epoch = (loader.samples_per_epoch() + options.world - 1 - options.rank) / options.world;
  if (options.last == LastBatch::kDrop) epoch = loader.steps_per_epoch() * options.batch;
  const uint64_t all = epoch * options.epochs;
  if (!stop_after) return all;
  return std::min(all, (*stop_after + options.batch - 1) / options.batch * options.batch);
}

absl::Status Drain(BatchSource& loader, const FeedFlags& flags, uint64_t expected, SteadyClock::time_point begin,
                   FeedResult* result) {
  ProgressLine progress("feeding " + flags.source.uris.front(), ProgressLine::Unit::kItems);
  StateFile state(flags.state);
  absl::Status status;
  uint64_t samples = 0;  // the loader's report has it too, but with a copy of all that was quarantined
  while (!flags.stop_after || samples < *flags.stop_after) {
    while (!Interrupted() && !loader.WaitReady(kFeedSlice)) {
    }
    if (Interrupted()) break;
    absl::StatusOr<std::optional<Batch>> batch = loader.Next();
    status = batch.status();
    if (!status.ok() || !*batch) break;
    if (result->batches++ == 0) result->first_batch_seconds = SecondsSince(begin);
    samples += (*batch)->valid;
    progress.Update(samples, expected);
    if (state.due()) RETURN_IF_ERROR(state.Write(loader.report()));
  }
  // The state is written also after a failure or an interrupt: samples that were received before need not be fed again.
  absl::Status kept = state.Write(loader.report());
  return status.ok() ? kept : status;
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(Runtime& runtime, Stores& stores, const std::string& uri,
                                                     std::optional<LabelsFile> labels, bool by_class) {
  InterruptStop interrupt;
  ProgressLine progress("indexing " + uri, ProgressLine::Unit::kBytes);
  StagedAdvice advice;
  const SteadyClock::time_point begin = SteadyClock::now();
  OpenOptions open;
  open.progress = [&](uint64_t done, uint64_t total) {
    if (const std::optional<std::string> text = advice.Update(done, total, SecondsSince(begin))) {
      progress.Clear();
      PrintError("{}\n", *text);
    }
    progress.Update(done, total);
  };
  open.stop = interrupt.token();
  open.labels = std::move(labels);
  open.raw.classes = by_class;
  return Dataset::Open(runtime, stores, uri, open);
}

// Returns the items that are fed: samples, or rows of their tokens.
absl::StatusOr<Source> ItemsOf(Stores& stores, const Source& samples, const std::optional<TokenOptions>& tokens) {
  if (!tokens) return samples;
  InterruptStop interrupt;
  ProgressLine progress("making rows of " + samples.uri(), ProgressLine::Unit::kItems);
  return Source::OfRows(stores, samples, *tokens, progress.Task(interrupt.token()));
}

absl::StatusOr<std::unique_ptr<BatchSource>> MakeBatchSource(Runtime& runtime, const Source& source,
                                                             const LoaderOptions& options,
                                                             const std::optional<ServiceOptions>& workers) {
  InterruptStop interrupt;
  RETURN_IF_ERROR(CheckSamples(source, options, interrupt.token()));
  if (workers) return FeedFromWorkers(runtime, source, options, *workers);
  return Loader::Create(runtime, source, options);
}

// A staged epoch begins before the index is known as a whole, which these options need. "": none of them is given.
std::string_view OptionForWhole(const FeedFlags& flags) {
  const SourceFlags& source = flags.source;
  const std::pair<bool, std::string_view> needs[] = {{source.uris.size() > 1, "several data sets"},
                                                     {!source.split.empty(), "--split"},
                                                     {!source.where.empty(), "--where"},
                                                     {source.labels.file().has_value(), "--labels"},
                                                     {source.balance, "--balance"},
                                                     {!source.weights.empty(), "--weights"},
                                                     {source.epoch_samples > 0, "--epoch-samples"},
                                                     {!flags.tokens.empty(), "--tokens"},
                                                     {!flags.workers.workers.empty(), "--workers"},
                                                     {flags.explain, "--explain"}};
  for (const auto& [given, name] : needs) {
    if (given) return name;
  }
  return "";
}

// True if the run is staged whatever its data are: by --start, or because it continues a staged run.
bool IsStaged(const FeedFlags& flags, const LoaderOptions& options) {
  return flags.start == "staged" || (flags.start.empty() && options.start && options.start->stage);
}

absl::Status CheckStaged(const FeedFlags& flags) {
  const std::string_view option = OptionForWhole(flags);
  if (option.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "{}: the whole index must be known, and --start staged begins before it is; use --start indexed", option));
}

// The data set if the run is staged, else null. An index makes no difference.
absl::StatusOr<std::unique_ptr<StagedDataset>> OpenStaged(const FeedFlags& flags, const LoaderOptions& options,
                                                          Runtime& runtime, Stores& stores) {
  if (!IsStaged(flags, options)) return nullptr;
  InterruptStop interrupt;
  OpenOptions open;
  open.stop = interrupt.token();
  open.share = {.part = options.rank, .parts = options.world};
  return StagedDataset::Open(runtime, stores, flags.source.uris.front(), open);
}

// Represents a run whose loader is there.
struct Running {
  FeedResult result;
  const Source* source = nullptr;  // null: staged
  std::function<RequestCounts()> requests;
};

absl::Status DrainAndReport(const FeedFlags& flags, const LoaderOptions& options, LoaderTotals& totals,
                            const std::string& title, BatchSource& loader, SteadyClock::time_point begin,
                            double cpu_before, Running running) {
  const std::unique_ptr<LoaderTotals::Entry> counted = totals.Count(title, loader);
  FeedResult& result = running.result;
  RETURN_IF_ERROR(Drain(loader, flags, ExpectedSamples(options, loader, flags.stop_after), begin, &result));
  result.seconds = SecondsSince(begin);
  result.cpu_seconds = CpuSeconds() - cpu_before;
  result.report = loader.report();
  const RequestCounts counters = running.requests();
  RETURN_IF_ERROR(WriteStdout(flags.json
                                  ? FeedJson(running.source, result, counters)
                                  : FeedText(flags.memory, flags.cache.place, running.source, result, counters)));
  if (!Interrupted()) return absl::OkStatus();
  return absl::CancelledError(fmt::format("interrupted; continue with --resume {}", result.report.position.ToString()));
}

absl::Status FeedStaged(const FeedFlags& flags, const LoaderOptions& options, Runtime& runtime,
                        std::unique_ptr<StagedDataset> data, LoaderTotals& totals, SteadyClock::time_point opening) {
  const std::string& uri = flags.source.uris.front();
  Running running;
  StoreCounts of_data;
  of_data.Add(data->store());
  const double cpu_before = CpuSeconds();
  std::unique_ptr<StagedLoader> loader;
  {
    InterruptStop interrupt;
    ProgressLine progress("indexing the first stage of " + uri, ProgressLine::Unit::kBytes);
    data->Continue(interrupt.token(), [&](uint64_t done, uint64_t total) { progress.Update(done, total); });
    ASSIGN_OR_RETURN(loader, StagedLoader::Create(runtime, std::move(data), options));
  }
  const SteadyClock::time_point begin = SteadyClock::now();
  running.result.open_seconds = std::chrono::duration<double>(begin - opening).count();
  running.requests = [&of_data] { return of_data.Sum(); };
  return DrainAndReport(flags, options, totals, uri, *loader, begin, cpu_before, std::move(running));
}

absl::Status Feed(const FeedFlags& flags) {
  ASSIGN_OR_RETURN(const std::chrono::nanoseconds outage_limit, TakeOutageLimit(flags.outage_limit));
  ASSIGN_OR_RETURN(const LoaderOptions parsed, AsUsage(ToOptions(flags)));
  std::optional<TokenOptions> tokens;
  if (!flags.tokens.empty()) {
    ASSIGN_OR_RETURN(tokens, AsUsage(ParseTokens(flags.tokens)));
  }
  ASSIGN_OR_RETURN(const SourceRequest request, AsUsage(ParseSource(flags.source)));
  ASSIGN_OR_RETURN(const std::optional<RangeCacheOptions> cache, flags.cache.Take());
  ASSIGN_OR_RETURN(const std::optional<ServiceOptions> workers, AsUsage(TakeWorkers(flags.workers)));
  for (const std::string& uri : flags.source.uris) RETURN_IF_ERROR(CheckUri(uri));
  ASSIGN_OR_RETURN(const std::optional<MetricsAddress> metrics_address, TakeMetricsPort(flags.metrics_port));
  RETURN_IF_ERROR(CheckFolderOf("--state", flags.state));
  if (IsStaged(flags, parsed)) RETURN_IF_ERROR(AsUsage(CheckStaged(flags)));
  RuntimeOptions runtime_options = flags.runtime;
  runtime_options.memory_bytes = parsed.memory_bytes + std::min(CacheMemoryOf(cache), UINT64_MAX - parsed.memory_bytes);
  Runtime runtime(runtime_options);
  LoaderOptions options = parsed;  // whose cache is gone before the runtime
  StoreCounts requests;
  Stores stores(runtime, requests.Watch());
  LoaderTotals totals;
  ASSIGN_OR_RETURN(const std::unique_ptr<MetricsServer> metrics, ServeMetrics(metrics_address, [&](MetricsText* text) {
                     CollectProcess(text);
                     CollectMemory(runtime.memory(), text);
                     requests.Collect(text);
                     CollectLoaders(totals, text);
                   }));
  stores.SetOutageLimit(outage_limit);
  const SteadyClock::time_point opening = SteadyClock::now();
  if (cache && cache->in_memory()) options.local_ranks = 1;  // each process has its own
  ASSIGN_OR_RETURN(std::unique_ptr<StagedDataset> staged, OpenStaged(flags, options, runtime, stores));
  if (staged != nullptr) {
    ASSIGN_OR_RETURN(options.cache, RangeCache::Open(cache, runtime.memory()));
    return FeedStaged(flags, options, runtime, std::move(staged), totals, opening);
  }
  std::vector<std::unique_ptr<Dataset>> datasets;
  for (const std::string& uri : flags.source.uris) {
    ASSIGN_OR_RETURN(datasets.emplace_back(),
                     OpenDataset(runtime, stores, uri, flags.source.labels.file(), request.NeedsClasses()));
  }
  ASSIGN_OR_RETURN(const FeedSource feed, MakeSource(runtime, datasets, request));
  options.mix = feed.mix;
  ASSIGN_OR_RETURN(const Source source, ItemsOf(stores, feed.source, tokens));
  if (flags.explain) {
    const uint64_t cache_bytes = cache ? CacheBytesOf(*cache) : 0;
    ASSIGN_OR_RETURN(const std::string text, ExplainFeed(source, options, cache_bytes, flags.json));
    return WriteStdout(text);
  }
  ASSIGN_OR_RETURN(options.cache, RangeCache::Open(cache, runtime.memory()));
  const SteadyClock::time_point begin = SteadyClock::now();
  const double cpu_before = CpuSeconds();
  Running running{.result = {}, .source = &source, .requests = nullptr};
  running.result.open_seconds = std::chrono::duration<double>(begin - opening).count();
  ASSIGN_OR_RETURN(const std::unique_ptr<BatchSource> loader, MakeBatchSource(runtime, source, options, workers));
  running.requests = [&datasets] {
    StoreCounts of_data;  // without the cache folder, for example
    for (const std::unique_ptr<Dataset>& dataset : datasets) of_data.Add(dataset->store());
    return of_data.Sum();
  };
  return DrainAndReport(flags, options, totals, source.uri(), *loader, begin, cpu_before, std::move(running));
}

void AddReadingOptions(Command feed, FeedFlags* flags) {
  const auto add = [feed](const char* name, auto* value, const char* what) { return feed.AddShown(name, value, what); };
  add("--batch", &flags->loader.batch, "Samples of a batch, per rank").Number(1);
  feed.Add("--threads", &flags->runtime.cpu_threads, "CPU threads that decode [all CPUs]").Number(0, 1024);
  add("--io-threads", &flags->runtime.io_threads, "Network threads").Number(1, 64);
  add("--memory", &flags->memory, "Budget for fetched bytes and batches");
  const Option cache = flags->cache.AddTo(
      feed, "Keep bytes that are read in this folder, for later epochs and runs, or in memory, for later epochs");
  feed.AddFlag("--pin", &flags->loader.pin, "Keep these bytes until they are cleared; other data do not replace them")
      .Needs(cache);
  AddWorkersOptions(feed, &flags->workers);
  add("--shuffle", &flags->shuffle, "Order of the samples").Words({"window", "global", "none"});
  feed.Add("--extent", &flags->loader.extent, "Consecutive samples fetched together, by --shuffle window [1.5 MiB]")
      .Number(1);
  feed.Add("--window", &flags->loader.window, "Extents shuffled together; a multiple of --lanes [256 MiB]").Number(1);
  feed.Add("--lanes", &flags->loader.lanes,
           "Equal divisions of a window that are not split between ranks; a power of two [64]")
      .Number(1);
  add("--seed", &flags->loader.seed, "Seed of order and augmentation").Number(0);
  add("--epochs", &flags->loader.epochs, "Passes over the data").Number(1);
  add("--rank", &flags->loader.rank, "This consumer's number, from 0").Number(0);
  add("--world", &flags->loader.world, "How many consumers share the data").Number(1);
  add("--last", &flags->last, "The last, short batch").Words({"pad", "short", "drop", "wrap"});
  feed.Add(
          "--start", &flags->start,
          "indexed: begin when all shards are indexed; staged: begin with some, and index the others meanwhile [as the "
          "position of --resume says, else indexed]")
      .Words({"indexed", "staged"});
  feed.Add("--stop-after", &flags->stop_after,
           "Stop at the batch that reaches this many samples of this rank; 0: feed none")
      .Number(0);
  feed.Add("--resume", &flags->resume, "Continue at this position");
  feed.Add("--state", &flags->state, "Keep position, samples and digest in this file");
}

void AddDecodingOptions(Command feed, FeedFlags* flags) {
  const auto add = [feed](const char* name, auto* value, const char* what) { return feed.AddShown(name, value, what); };
  add("--size", &flags->size, "Height and width of the images").Number(1, 16384);
  add("--channels", &flags->loader.image.channels, "3 for RGB, 1 for grey").Words({"3", "1"});
  feed.Add("--tokens", &flags->tokens,
           "Rows of tokens, LENGTH[:LAYOUT[:OPTION]]: pack, pad, stream, stream:documents; or "
           "LENGTHxBATCH,...:bucket; :split, :truncate or :refuse for long documents");
  feed.AddFlag("--augment", &flags->loader.image.augment,
               "Random resized crop and flip, instead of resizing and cropping the centre");
  feed.AddFlag("--exact", &flags->loader.image.exact,
               "Decode in full size, then crop and resize: slower, nothing is shrunk by the codec");
  feed.AddFlag("--exif-orientation", &flags->loader.image.exif_orientation,
               "Turn and mirror images as their EXIF data say (TIFFs always are)");
  add("--dtype", &flags->dtype, "Type of the pixels").Words({"u8", "f32"});
  add("--layout", &flags->layout, "Order of the axes: batch, height, width, channels").Words({"nhwc", "nchw"});
  feed.Add("--image-field", &flags->loader.image_field, "The field to decode, if several hold images");
  const Option label_field =
      feed.Add("--label-field", &flags->label_field, "The field that holds the label [cls, if there is one]");
  add("--label-kind", &flags->label_kind,
      "int, float, text, or json:PATH, json-float:PATH and json-text:PATH for a whole number, any number or a string "
      "in a JSON field")
      .Needs(label_field);
  add("--digest-of", &flags->digest_of, "raw: stored bytes; decoded: pixels in place of the image")
      .Words({"raw", "decoded"});
  add("--bad-samples", &flags->bad_samples, "fail; replace them by others; or mask: their rows stay, and are padding")
      .Words({"fail", "replace", "mask"});
}

}  // namespace

void AddFeed(Command app) {
  const Command feed = app.AddCommand("feed", "Run the input pipeline without a model: rates, waits, digest");
  auto flags = std::make_shared<FeedFlags>();
  AddSourceOptions(feed, &flags->source);
  AddReadingOptions(feed, flags.get());
  AddDecodingOptions(feed, flags.get());
  feed.AddFlag("--explain", &flags->explain,
               "Feed nothing, but show the order, the memory, the expected requests and the first samples");
  feed.AddShown("--outage-limit SECONDS", &flags->outage_limit, kOutageLimitHelp);
  AddMetricsPort(feed, &flags->metrics_port);
  feed.AddFlag("--json", &flags->json, "One JSON object on stdout");
  feed.Footer(
      "An interrupt (Ctrl-C, SIGTERM) ends the run after the current batch. The result so far is printed as usual, "
      "--state is written, and the exit status is 128 plus the number of the signal. After any other failure nothing "
      "is printed on stdout, but --state is written.\n\n"
      "Examples:\n"
      "  millrace feed s3://bucket/train --batch 256 --augment\n"
      "  millrace feed /data/train --shuffle none --threads 8 --json\n"
      "  millrace feed s3://bucket/train --explain --rank 0 --world 8\n"
      "  millrace feed s3://bucket/all --split train=0.9,valid=0.1 --take valid --shuffle none\n"
      "  millrace feed s3://bucket/photos s3://bucket/drawings --weights 3,1 --epoch-samples 1000000 --explain\n"
      "  millrace feed s3://bucket/train --labels s3://bucket/labels.csv --missing-labels drop\n"
      "  millrace feed s3://bucket/corpus --tokens 2048:pack --batch 8\n"
      "  millrace feed s3://bucket/train --epochs 3 --cache /nvme/millrace --cache-size 50GiB\n"
      "  millrace feed s3://bucket/train --epochs 3 --cache memory --cache-size 4GiB\n"
      "  millrace feed s3://bucket/train --workers 10.0.0.1:7070,10.0.0.2:7070 --local-streams 1\n"
      "  millrace feed s3://bucket/train --state run.json      # interrupted ...\n"
      "  millrace feed s3://bucket/train --resume \"$(jq -r .position run.json)\"");
  feed.Run([flags] { return ExitStatus("feed", HintAtS3(Feed(*flags), flags->source.uris)); });
}

}  // namespace millrace::cli
