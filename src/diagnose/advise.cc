#include "diagnose/advise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/compressed_size.h"
#include "base/counted.h"
#include "dataset/dataset.h"
#include "diagnose/advise_answer.h"
#include "inspect/report.h"
#include "inspect/survey.h"
#include "net/runtime.h"
#include "pipeline/explain.h"
#include "store/blocking.h"
#include "store/uri.h"

namespace millrace {

namespace {

constexpr uint64_t kPartBytes = uint64_t{8} << 20;
constexpr uint64_t kMaxPlaces = 512;
constexpr double kReadSeconds = 1.5;
constexpr double kInFlightSeconds = 4;
constexpr uint64_t kAdviseMemory = uint64_t{1} << 30;
constexpr uint64_t kRangesMemory = uint64_t{512} << 20;
constexpr uint64_t kMaxFetchedIndex = uint64_t{256} << 20;

/// Objects from all over the data set, each with a range of at most `bytes` at its beginning.
absl::StatusOr<std::vector<ReadPlace>> SpreadPlaces(const Dataset& dataset, uint64_t bytes) {
  const uint64_t objects = dataset.index().objects();
  const uint64_t count = std::min(objects, kMaxPlaces);
  std::vector<ReadPlace> places;
  for (uint64_t i = 0; i < count; ++i) {
    IndexedObject object;
    RETURN_IF_ERROR(dataset.index().LookupObject(static_cast<uint32_t>(i * objects / count), &object));
    // The reads are one object after another, and within large ones one part after another.
    const uint64_t parts = std::max<uint64_t>(1, std::min<uint64_t>(object.size / bytes, kMaxPlaces / count));
    for (uint64_t part = 0; part < parts && object.size > 0; ++part) {
      const uint64_t offset = part * bytes;
      places.push_back({dataset.StoreKey(object.key), {offset, std::min(bytes, object.size - offset)}});
    }
  }
  if (places.empty()) {
    return absl::NotFoundError(fmt::format("{}: all objects are empty, so nothing can be measured", dataset.uri()));
  }
  return places;
}

absl::StatusOr<DataFacts> LookAtData(const Dataset& dataset, const std::stop_token& stop) {
  const Index& index = dataset.index();
  DataFacts facts{.uri = dataset.uri(),
                  .kind = index.kind(),
                  .samples = index.size(),
                  .objects = index.objects(),
                  .index_bytes = index.file_bytes()};
  for (uint32_t i = 0; i < index.objects(); ++i) {
    IndexedObject object;
    RETURN_IF_ERROR(index.LookupObject(i, &object));
    facts.object_bytes += object.size;
  }
  ASSIGN_OR_RETURN(const Survey survey, MakeSurvey(index, {.stop = stop}));
  if (survey.sizes.count() > 0) {
    facts.median_sample_bytes = survey.sizes.Quantile(0.5);
    facts.p99_sample_bytes = survey.sizes.Quantile(0.99);
  }
  return facts;
}

/// Measures it over the beginnings of some objects.
absl::StatusOr<double> MeasureCompression(const Dataset& dataset, const std::stop_token& stop) {
  constexpr size_t kMaxRead = 16;
  constexpr uint64_t kEach = uint64_t{64} << 10;
  ASSIGN_OR_RETURN(const std::vector<ReadPlace> places, SpreadPlaces(dataset, kEach));
  uint64_t before = 0;
  uint64_t after = 0;
  for (size_t i = 0; i < std::min(kMaxRead, places.size()); ++i) {
    const ReadPlace& place = places[i * places.size() / std::min(kMaxRead, places.size())];
    std::vector<std::byte> bytes(place.range.length);
    RETURN_IF_ERROR(GetBlocking(dataset.store(), place.key, bytes, {.range = place.range, .stop = stop}).status());
    before += bytes.size();
    after += CompressedSize(bytes);
  }
  return before > 0 ? std::min(1.0, static_cast<double>(after) / static_cast<double>(before)) : 1;
}

absl::StatusOr<StoreFacts> MeasureStoreFor(const Dataset& dataset, uint64_t stream_request_bytes,
                                           const std::stop_token& stop) {
  ObjectStore& store = dataset.store();
  StoreFacts facts;
  ASSIGN_OR_RETURN(const std::vector<ReadPlace> wholes, SpreadPlaces(dataset, kPartBytes));
  ASSIGN_OR_RETURN(facts.first_byte_seconds, MeasureFirstByte(store, wholes, stop));
  ASSIGN_OR_RETURN(const ReadRate one, MeasureReads(store, wholes, 1, kReadSeconds / 2, 0, stop));
  // This is the time that is left without the first bytes. It is at least a tenth, since the two were measured at
  // different times.
  const double body =
      std::max(one.seconds - facts.first_byte_seconds * static_cast<double>(one.reads), one.seconds / 10);
  facts.one_bytes_per_second = static_cast<double>(one.bytes) / std::max(body, 1e-9);
  ASSIGN_OR_RETURN(facts.download, MeasureReads(store, wholes, kDownloadsAtOnce, kReadSeconds, 0, stop));
  const uint64_t range_bytes = std::clamp<uint64_t>(stream_request_bytes, 1, kPartBytes);
  ASSIGN_OR_RETURN(const std::vector<ReadPlace> ranges, SpreadPlaces(dataset, range_bytes));
  // No more than the link brings in some seconds, as far as the download tells: what was begun is waited for.
  const double fit = kInFlightSeconds * facts.download.bytes_per_second() / static_cast<double>(range_bytes);
  const auto most = static_cast<double>(std::min<uint64_t>(kStreamsAtOnce, kRangesMemory / range_bytes));
  facts.streams_at_once = static_cast<int>(std::clamp(fit, double{kDownloadsAtOnce}, most));
  ASSIGN_OR_RETURN(facts.stream, MeasureReads(store, ranges, facts.streams_at_once, kReadSeconds, 0, stop));
  ASSIGN_OR_RETURN(facts.list, MeasureListing(store, dataset.StoreKey(""), stop));
  return facts;
}

/// Requests and bytes of an epoch by the plan; of what no loader takes, those of reading each object once.
void TakePlan(const Dataset& dataset, const LoaderOptions& loader, CostInputs* inputs) {
  const absl::StatusOr<LoaderExplanation> plan = Explain(dataset, loader, {.first_samples = 0});
  const bool known = plan.ok() && plan->fetches.requests > 0;
  inputs->stream_requests = known ? plan->fetches.requests : inputs->objects;
  inputs->stream_bytes = known ? plan->fetches.bytes : inputs->object_bytes;
}

void TakeRates(const StoreFacts& store, const AdviseSettings& settings, CostInputs* inputs) {
  inputs->first_byte_seconds = store.first_byte_seconds;
  inputs->one_bytes_per_second = store.one_bytes_per_second;
  inputs->list_seconds_per_page = store.list.seconds_per_page();
  inputs->download_bytes_per_second = store.download.bytes_per_second();
  inputs->stream_bytes_per_second = store.stream.bytes_per_second();
  if (!settings.published_rates) return;
  inputs->list_seconds_per_page = kListedPerPage / settings.prices.listed_objects_per_second;
  inputs->download_bytes_per_second = settings.prices.file_mode_bytes_per_second;
  inputs->download_files_per_second = settings.prices.file_mode_files_per_second;
}

AcceleratorFacts NeedOf(const AdviseSettings& settings, const CostInputs& inputs) {
  AcceleratorFacts facts;
  facts.accelerators = settings.machine ? std::max(1, settings.machine->gpus) : 1;
  facts.vcpus_each =
      static_cast<double>(inputs.batch) * inputs.cpu_seconds_per_sample / std::max(1e-9, settings.step_seconds);
  facts.need = NeedOfVcpus(facts.vcpus_each, facts.accelerators, inputs.vcpus);
  facts.step_seconds = settings.step_seconds / std::max(1e-9, facts.need.most_accelerator);
  facts.dollars_per_100_steps = DollarsOfSteps(inputs.dollars_per_hour, facts.step_seconds, 100);
  return facts;
}

bool IsForThisMachine(const AdviseSettings& settings) {
  return !settings.machine || settings.machine->vcpus == UsableCpus();
}

/// Tries the loader on the data on this machine, and measures the CPU time of a sample.
absl::Status TryStreaming(const std::string& uri, const AdviseSettings& settings, bool fetches_index, Advice* advice) {
  BenchSettings bench = settings.bench;
  bench.damaged = &advice->damaged;
  ASSIGN_OR_RETURN(advice->loader_trial, TryLoader(uri, bench, fetches_index ? advice->data.index_bytes : 0));
  CostInputs& in = advice->inputs;
  in.cpu_seconds_per_sample = advice->loader_trial.cpu_seconds_per_sample;
  if (!IsForThisMachine(settings)) {
    if (settings.published_rates) return absl::OkStatus();
    CostInputs here = in;
    here.vcpus = UsableCpus();
    const double arithmetic = PredictStreaming(here, settings.prices).startup_seconds;
    in.tried_beyond_seconds = std::max(0.0, advice->loader_trial.startup_seconds.median - arithmetic);
    return absl::OkStatus();
  }
  in.tried_startup_seconds = advice->loader_trial.startup_seconds;
  in.tried_samples_per_second = advice->loader_trial.samples_per_second;
  return absl::OkStatus();
}

/// Tries File mode on them, for as many bytes as a few seconds suffice to copy.
absl::Status TryDownload(const std::string& uri, const AdviseSettings& settings, Advice* advice) {
  constexpr double kLeastBytes = 1 << 20;
  constexpr double kMostBytes = 1 << 30;
  constexpr double kSeconds = 4;
  // A copy has more in flight than the download had that was measured.
  const double rate = std::max(advice->store.download.bytes_per_second(), advice->store.stream.bytes_per_second());
  const double most = std::clamp(kSeconds * rate, kLeastBytes, kMostBytes);
  ASSIGN_OR_RETURN(advice->copy_trial, TryCopy(uri, settings.bench, static_cast<uint64_t>(most)));
  advice->inputs.tried_copy_filling_seconds = advice->copy_trial.filling_seconds;
  advice->inputs.tried_copy_bytes_per_second = advice->copy_trial.bytes_per_second;
  return absl::OkStatus();
}

void AddCompressionAdvice(const DataFacts& data, std::vector<std::string>* sentences) {
  constexpr double kWorthIt = 0.8;
  if (data.compressed_share >= kWorthIt) return;
  sentences->push_back(
      fmt::format("The bytes are not compressed: zstd makes {:.0f} % of them. A compressed format of the fields (PNG, "
                  "JPEG, compressed arrays) would be read and stored for less.",
                  100 * data.compressed_share));
}

void AddCpuAdvice(const Advice& advice, std::vector<std::string>* sentences) {
  const CostInputs& in = advice.inputs;
  const auto streaming = std::find_if(advice.predictions.begin(), advice.predictions.end(),
                                      [](const CostPrediction& one) { return one.mode == "streaming"; });
  const double cpu = in.cpu_seconds_per_sample * static_cast<double>(in.samples) / in.vcpus;
  const double reading =
      in.stream_bytes_per_second > 0 ? static_cast<double>(in.stream_bytes) / in.stream_bytes_per_second : 0;
  if (streaming != advice.predictions.end() && cpu > reading && cpu > ModelSeconds(in)) {
    sentences->push_back(
        fmt::format("The CPU is the limit, not the store: an epoch keeps {} vCPUs busy for {:.1f} s, and reading takes "
                    "{:.1f} s. A machine with more vCPUs, or smaller images, makes it faster.",
                    in.vcpus, cpu, reading));
  }
  if (!advice.accelerator) return;
  const AcceleratorFacts& facts = *advice.accelerator;
  if (facts.need.missing > 0) {
    sentences->push_back(fmt::format(
        "{} with this step need {} vCPUs, and there are {}: they are busy for {:.0f} % of the time at most, and a step "
        "takes {:.0f} ms. (CloudWatch's CPUUtilization then shows {} %.)",
        Counted(static_cast<uint64_t>(facts.accelerators), "accelerator"), facts.need.needed, in.vcpus,
        100 * facts.need.most_accelerator, 1000 * facts.step_seconds, MostCpuUtilization(in.vcpus)));
  }
}

bool WorthPacking(const CostInputs& in) {
  return in.objects > 1 && in.objects >= in.samples &&
         static_cast<double>(in.object_bytes) / static_cast<double>(in.objects) < kSmallFileBytes &&
         in.object_bytes > kPackedExtentBytes;
}

}  // namespace

std::vector<CostPrediction> ComparableOf(const std::vector<CostPrediction>& all, const CostInputs& inputs) {
  std::vector<CostPrediction> predictions;
  for (const CostPrediction& one : all) {
    const bool apart = one.mode == "fsx" || one.mode == "streaming-packed" || (one.mode == "efs" && !inputs.in_efs);
    const bool copies = inputs.in_folder && one.mode != "streaming" && one.mode != "efs";
    if (!apart && !copies) predictions.push_back(one);
  }
  return predictions;
}

std::vector<CostPrediction> PredictAll(const CostInputs& in, const PriceList& list) {
  PriceList prices = list;
  if (in.in_folder) prices.get_per_million = prices.list_per_million = prices.put_per_million = 0;
  std::vector<CostPrediction> all = {PredictFile(in, prices), PredictFastFile(in, prices),
                                     PredictMountWithCache(in, prices)};
  if (prices.efs_gigabyte_month > 0) all.push_back(PredictEfs(in, prices));
  all.push_back(PredictFsx(in, prices));
  all.push_back(PredictStreaming(in, prices));
  if (WorthPacking(in)) all.push_back(PredictStreamingPacked(in, prices));
  all.push_back(PredictStreamingWithCache(in, prices));
  return all;
}

uint64_t ReadersForRate(const CostInputs& in) {
  if (in.objects == 0 || in.one_bytes_per_second <= 0 || in.stream_bytes_per_second <= 0) return 0;
  const double mean = static_cast<double>(in.object_bytes) / static_cast<double>(in.objects);
  const double part = std::min(mean, static_cast<double>(kFastFileRequestBytes));
  const double each = in.first_byte_seconds + part / in.one_bytes_per_second;
  return static_cast<uint64_t>(std::ceil(in.stream_bytes_per_second * each / std::max(1.0, part)));
}

Recommendation RecommendedBy(const Advice& advice) {
  const CostInputs& in = advice.inputs;
  Recommendation what;
  what.source = DataSourceName(advice.choice.source);
  const AdviceAnswer answer = AnswerOf(advice.predictions, in);
  what.mode = answer.chosen.mode;
  const bool pack = advice.data.kind == DataKind::kRawObjects && WorthPacking(in);
  what.format = pack ? "tar" : std::string(KindName(advice.data.kind));
  if (pack) what.shard_bytes = kPackedShardBytes;
  what.data_workers = ReadersForRate(in);
  for (const CostPrediction& one : answer.equal) what.no_difference.push_back(one.mode);
  return what;
}

std::vector<std::string> RecommendFrom(const std::vector<CostPrediction>& all, const CostInputs& inputs,
                                       const SourceChoice& choice) {
  std::vector<std::string> sentences;
  const std::vector<CostPrediction> predictions = ComparableOf(all, inputs);
  if (predictions.empty()) return sentences;
  const auto fastest = std::min_element(predictions.begin(), predictions.end(),
                                        [&](const CostPrediction& one, const CostPrediction& other) {
                                          return one.total_seconds(inputs.epochs) < other.total_seconds(inputs.epochs);
                                        });
  const auto earliest = std::min_element(predictions.begin(), predictions.end(),
                                         [](const CostPrediction& one, const CostPrediction& other) {
                                           return one.startup_seconds < other.startup_seconds;
                                         });
  const auto cheapest = std::min_element(
      predictions.begin(), predictions.end(),
      [](const CostPrediction& one, const CostPrediction& other) { return one.dollars() < other.dollars(); });
  sentences.push_back(fmt::format("The least time for {} takes {}: {:.1f} s; the first batch comes after {:.2f} s.",
                                  Counted(inputs.epochs, "epoch"), fastest->title,
                                  fastest->total_seconds(inputs.epochs), fastest->startup_seconds));
  const AdviceAnswer answer = AnswerOf(all, inputs);
  std::string equal;
  const auto add_equal = [&](const CostPrediction& one) {
    if (one.mode != fastest->mode) equal += (equal.empty() ? "" : ", ") + one.title;
  };
  add_equal(answer.chosen);
  for (const CostPrediction& one : answer.equal) add_equal(one);
  if (!equal.empty())
    sentences.push_back(fmt::format("There is no difference of more than {:.0f} % to {}.", 100 * kNoDifference, equal));
  if (earliest != fastest) {
    sentences.push_back(fmt::format("The first batch comes earliest by {}: after {:.2f} s.", earliest->title,
                                    earliest->startup_seconds));
  }
  if (fastest->dollars() < kCent) {
    sentences.push_back(fmt::format("The price of {} is less than a cent.", fastest->title));
  } else if (fastest->dollars() - cheapest->dollars() >= kCent) {
    sentences.push_back(fmt::format("The cheapest is {}: {} against {}.", cheapest->title,
                                    DollarText(cheapest->dollars()), DollarText(fastest->dollars())));
  }
  sentences.push_back(
      fmt::format("Without Millrace, AWS's decision flow leads to: {}.", DataSourceName(choice.source)));
  if (const uint64_t readers = ReadersForRate(inputs); readers > 0) {
    sentences.push_back(
        fmt::format("Readers that wait for each file or part (FastFile mode, mounts) need {} data workers for the "
                    "rate of many requests; Millrace needs one process.",
                    readers));
  }
  const auto of_mode = [&all](std::string_view mode) {
    return std::find_if(all.begin(), all.end(), [mode](const CostPrediction& one) { return one.mode == mode; });
  };
  const auto packed = of_mode("streaming-packed");
  const auto plain = of_mode("streaming");
  if (packed != all.end() && plain != all.end() && packed->requests < plain->requests) {
    const std::string price = plain->request_dollars < kCent
                                  ? ""
                                  : fmt::format(", for {} in place of {}", DollarText(packed->request_dollars),
                                                DollarText(plain->request_dollars));
    sentences.push_back(
        fmt::format("Packed into shards of {} MB, the same training makes {} requests in place of {}{}; `millrace "
                    "pack` does it once.",
                    kPackedShardBytes / 1'000'000, packed->requests, plain->requests, price));
  }
  return sentences;
}

namespace {

/// Returns true if the loader of a training would fetch the index from the store, and fetching it here costs little.
bool FetchesIndex(const Dataset& dataset) {
  const DatasetPlace& place = dataset.place();
  return dataset.index_uri() == place.store->Uri(place.index_key) && dataset.index().file_bytes() <= kMaxFetchedIndex;
}

bool IsInFolder(const std::string& uri) {
  const absl::StatusOr<ParsedUri> parsed = ParseUri(uri);
  return parsed.ok() && parsed->scheme == ParsedUri::Scheme::kFile;
}

absl::StatusOr<Advice> MeasureAndPredict(const std::string& uri, const AdviseSettings& settings) {
  const std::stop_token stop = settings.bench.stop;
  const auto phase = [&](const char* what) {
    if (settings.on_phase) settings.on_phase(what);
  };
  Advice advice;
  bool fetches_index = false;
  {
    phase("opening the data set");
    Runtime runtime({.memory_bytes = settings.bench.loader.memory_bytes + kAdviseMemory});
    Stores stores(runtime);
    OpenOptions open;
    open.cache_folder = settings.bench.cache_folder;
    open.stop = stop;
    ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> dataset, Dataset::Open(runtime, stores, uri, open));
    ASSIGN_OR_RETURN(advice.data, LookAtData(*dataset, stop));
    CostInputs& in = advice.inputs;
    in.objects = advice.data.objects;
    in.object_bytes = advice.data.object_bytes;
    in.samples = advice.data.samples;
    in.index_bytes = advice.data.index_bytes;
    in.in_efs = settings.in_efs;
    in.in_folder = IsInFolder(uri);
    in.epochs = settings.epochs;
    in.batch = settings.bench.loader.batch;
    in.step_seconds = settings.step_seconds;
    in.accelerators = settings.machine ? std::max(1, settings.machine->gpus) : 1;
    in.vcpus = settings.machine ? settings.machine->vcpus : UsableCpus();
    in.dollars_per_hour = settings.machine ? settings.machine->dollars_per_hour : 0;
    in.disk_bytes_per_second = settings.machine ? settings.machine->disk_bytes_per_second.value_or(0) : 0;
    in.workers = settings.workers > 0 ? settings.workers : static_cast<uint64_t>(in.vcpus);
    // Data that the loader does not take are no fault of the store: the rest is predicted all the same.
    advice.no_cpu_reason = ToStd(Loader::Check(*dataset, settings.bench.loader).message());
    TakePlan(*dataset, settings.bench.loader, &in);
    phase("measuring the store");
    ASSIGN_OR_RETURN(advice.data.compressed_share, MeasureCompression(*dataset, stop));
    ASSIGN_OR_RETURN(advice.store,
                     MeasureStoreFor(*dataset, in.stream_bytes / std::max<uint64_t>(1, in.stream_requests), stop));
    TakeRates(advice.store, settings, &in);
    ASSIGN_OR_RETURN(advice.recommendations, AdviseOnDataset(*dataset));
    fetches_index = FetchesIndex(*dataset);
  }
  phase("trying the loader");
  if (advice.no_cpu_reason.empty()) RETURN_IF_ERROR(TryStreaming(uri, settings, fetches_index, &advice));
  phase("trying a download");
  if (IsForThisMachine(settings) && !settings.published_rates) RETURN_IF_ERROR(TryDownload(uri, settings, &advice));
  const CostInputs& in = advice.inputs;
  advice.predictions = PredictAll(in, settings.prices);
  // A model that takes longer for a batch than a mount needs to bring it does not notice late files.
  const double batches = std::max(1.0, static_cast<double>(in.samples) / static_cast<double>(in.batch));
  CostInputs without_model = in;
  without_model.step_seconds = 0;
  const double mount_seconds = PredictFastFile(without_model, settings.prices).epoch_seconds;
  advice.choice = ChooseSource({.bytes = static_cast<double>(in.object_bytes),
                                .files = in.objects,
                                .in_efs = settings.in_efs,
                                .sequential = !settings.random_access,
                                .packable = settings.packable,
                                .heavy_model = settings.step_seconds > mount_seconds / batches,
                                .several_epochs = in.epochs > 1});
  if (settings.step_seconds > 0 && in.cpu_seconds_per_sample > 0) advice.accelerator = NeedOf(settings, in);
  std::vector<std::string> sentences = RecommendFrom(advice.predictions, in, advice.choice);
  AddCpuAdvice(advice, &sentences);
  AddCompressionAdvice(advice.data, &sentences);
  sentences.insert(sentences.end(), advice.recommendations.begin(), advice.recommendations.end());
  advice.recommendations = std::move(sentences);
  return advice;
}

}  // namespace

absl::StatusOr<Advice> Advise(const std::string& uri, const AdviseSettings& settings) {
  absl::StatusOr<Advice> advice = MeasureAndPredict(uri, settings);
  // Whichever request the stop has met says only that it was cancelled.
  if (absl::IsCancelled(advice.status()) && settings.bench.stop.stop_requested())
    return absl::CancelledError(fmt::format("{}: interrupted while it was measured", uri));
  return advice;
}

}  // namespace millrace
