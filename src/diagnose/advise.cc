#include "diagnose/advise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/counted.h"
#include "dataset/dataset.h"
#include "inspect/report.h"
#include "inspect/survey.h"
#include "net/runtime.h"
#include "pipeline/explain.h"

namespace millrace {

namespace {

constexpr uint64_t kPartBytes = uint64_t{8} << 20;
constexpr uint64_t kMaxPlaces = 512;
constexpr double kReadSeconds = 1.5;
constexpr uint64_t kAdviseMemory = uint64_t{1} << 30;

/// Objects from all over the data set, each with a range of at most `bytes` at its beginning.
absl::StatusOr<std::vector<ReadPlace>> SpreadPlaces(const Dataset& dataset, uint64_t bytes) {
  const uint64_t objects = dataset.index().objects();
  const uint64_t count = std::min(objects, kMaxPlaces);
  std::vector<ReadPlace> places;
  for (uint64_t i = 0; i < count; ++i) {
    IndexedObject object;
    RETURN_IF_ERROR(dataset.index().LookupObject(static_cast<uint32_t>(i * objects / count), &object));
    // One object after another, and within large ones one part after another.
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

absl::StatusOr<StoreFacts> MeasureStoreFor(const Dataset& dataset, uint64_t stream_request_bytes,
                                           const std::stop_token& stop) {
  ObjectStore& store = dataset.store();
  StoreFacts facts;
  ASSIGN_OR_RETURN(const std::vector<ReadPlace> wholes, SpreadPlaces(dataset, kPartBytes));
  ASSIGN_OR_RETURN(facts.first_byte_seconds, MeasureFirstByte(store, wholes, stop));
  ASSIGN_OR_RETURN(const ReadRate one, MeasureReads(store, wholes, 1, kReadSeconds / 2, 0, stop));
  // What is left without the first bytes; at least a tenth, since the two were measured at different times.
  const double body =
      std::max(one.seconds - facts.first_byte_seconds * static_cast<double>(one.reads), one.seconds / 10);
  facts.one_bytes_per_second = static_cast<double>(one.bytes) / std::max(body, 1e-9);
  ASSIGN_OR_RETURN(facts.download, MeasureReads(store, wholes, kDownloadsAtOnce, kReadSeconds, 0, stop));
  ASSIGN_OR_RETURN(const std::vector<ReadPlace> ranges,
                   SpreadPlaces(dataset, std::clamp<uint64_t>(stream_request_bytes, 1, kPartBytes)));
  ASSIGN_OR_RETURN(facts.stream, MeasureReads(store, ranges, kStreamsAtOnce, kReadSeconds, 0, stop));
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

/// What a sample costs the CPU, from a short run of the loader.
absl::Status TryLoader(const std::string& uri, const AdviseSettings& settings, Advice* advice) {
  BenchSettings bench = settings.bench;
  bench.warm_up_seconds = 0.25;
  bench.window_seconds = 0.5;
  bench.windows = 3;
  const absl::StatusOr<BenchPoint> point = MeasureRate(uri, bench);
  RETURN_IF_ERROR(point.status());
  advice->inputs.cpu_seconds_per_sample = Summarize(*point).cpu_per_1000.median / 1000;
  return absl::OkStatus();
}

void AddCpuAdvice(const Advice& advice, std::vector<std::string>* sentences) {
  const CostInputs& in = advice.inputs;
  const auto streaming = std::find_if(advice.predictions.begin(), advice.predictions.end(),
                                      [](const CostPrediction& one) { return one.mode == "streaming"; });
  const double cpu = in.cpu_seconds_per_sample * static_cast<double>(in.samples) / in.vcpus;
  const double reading =
      in.stream_bytes_per_second > 0 ? static_cast<double>(in.stream_bytes) / in.stream_bytes_per_second : 0;
  if (streaming != advice.predictions.end() && cpu > reading) {
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
        "takes {:.0f} ms.",
        Counted(static_cast<uint64_t>(facts.accelerators), "accelerator"), facts.need.needed, in.vcpus,
        100 * facts.need.most_accelerator, 1000 * facts.step_seconds));
  }
}

}  // namespace

std::vector<std::string> RecommendFrom(const std::vector<CostPrediction>& all, const CostInputs& inputs,
                                       const SourceChoice& choice) {
  std::vector<std::string> sentences;
  // A file system has to be created first, which takes minutes that no prediction has: it is not compared.
  std::vector<CostPrediction> predictions;
  for (const CostPrediction& one : all) {
    if (one.mode != "fsx") predictions.push_back(one);
  }
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
  if (earliest != fastest) {
    sentences.push_back(fmt::format("The first batch comes earliest by {}: after {:.2f} s.", earliest->title,
                                    earliest->startup_seconds));
  }
  if (cheapest != fastest) {
    sentences.push_back(fmt::format("The cheapest is {}: ${:.4f} against ${:.4f}.", cheapest->title,
                                    cheapest->dollars(), fastest->dollars()));
  }
  sentences.push_back(
      fmt::format("Without Millrace, AWS's decision flow leads to: {}.", DataSourceName(choice.source)));
  if (inputs.objects > 0 && inputs.one_bytes_per_second > 0 && inputs.stream_bytes_per_second > 0) {
    const double mean = static_cast<double>(inputs.object_bytes) / static_cast<double>(inputs.objects);
    const double part = std::min(mean, static_cast<double>(kFastFileRequestBytes));
    const double each = inputs.first_byte_seconds + part / inputs.one_bytes_per_second;
    const double readers = std::ceil(inputs.stream_bytes_per_second * each / std::max(1.0, part));
    sentences.push_back(
        fmt::format("Readers that wait for each file or part (FastFile mode, mounts) need {:.0f} data workers for the "
                    "rate of many requests; Millrace needs one process.",
                    readers));
  }
  return sentences;
}

absl::StatusOr<Advice> Advise(const std::string& uri, const AdviseSettings& settings) {
  const std::stop_token stop = settings.bench.stop;
  const auto phase = [&](const char* what) {
    if (settings.on_phase) settings.on_phase(what);
  };
  Advice advice;
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
    in.epochs = settings.epochs;
    in.batch = settings.bench.loader.batch;
    in.vcpus = settings.machine ? settings.machine->vcpus : UsableCpus();
    in.dollars_per_hour = settings.machine ? settings.machine->dollars_per_hour : 0;
    in.disk_bytes_per_second = settings.machine ? settings.machine->disk_bytes_per_second.value_or(0) : 0;
    in.workers = settings.workers > 0 ? settings.workers : static_cast<uint64_t>(in.vcpus);
    // Data that the loader does not take are no fault of the store: the rest is predicted all the same.
    advice.no_cpu_reason = ToStd(Loader::Check(*dataset, settings.bench.loader).message());
    TakePlan(*dataset, settings.bench.loader, &in);
    phase("measuring the store");
    ASSIGN_OR_RETURN(advice.store,
                     MeasureStoreFor(*dataset, in.stream_bytes / std::max<uint64_t>(1, in.stream_requests), stop));
    TakeRates(advice.store, settings, &in);
    ASSIGN_OR_RETURN(advice.recommendations, AdviseOnDataset(*dataset));
  }
  phase("trying the loader");
  if (advice.no_cpu_reason.empty()) RETURN_IF_ERROR(TryLoader(uri, settings, &advice));
  const CostInputs& in = advice.inputs;
  advice.predictions = {PredictFile(in, settings.prices), PredictFastFile(in, settings.prices),
                        PredictFsx(in, settings.prices), PredictStreaming(in, settings.prices),
                        PredictStreamingWithCache(in, settings.prices)};
  // A model that takes longer for a batch than a mount needs to bring it does not notice late files.
  const double batches = std::max(1.0, static_cast<double>(in.samples) / static_cast<double>(in.batch));
  advice.choice = ChooseSource({.bytes = static_cast<double>(in.object_bytes),
                                .files = in.objects,
                                .in_efs = settings.in_efs,
                                .sequential = !settings.random_access,
                                .packable = settings.packable,
                                .heavy_model = settings.step_seconds > advice.predictions[1].epoch_seconds / batches,
                                .several_epochs = in.epochs > 1});
  if (settings.step_seconds > 0 && in.cpu_seconds_per_sample > 0) advice.accelerator = NeedOf(settings, in);
  std::vector<std::string> sentences = RecommendFrom(advice.predictions, in, advice.choice);
  AddCpuAdvice(advice, &sentences);
  sentences.insert(sentences.end(), advice.recommendations.begin(), advice.recommendations.end());
  advice.recommendations = std::move(sentences);
  return advice;
}

}  // namespace millrace
