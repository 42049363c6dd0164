#include "loader_handle.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <tuple>
#include <vector>

#include "arguments.h"
#include "batch_dict.h"
#include "field_options.h"
#include "gil_release.h"
#include "interruptible.h"
#include "pipeline/explain.h"
#include "service/worker_tls.h"
#include "service/worker_token.h"

namespace millrace::python {

namespace {

// How long a signal waits at most.
constexpr std::chrono::milliseconds kPollSlice{50};

constexpr std::string_view kClosed =
    "the Loader is closed; make a new one, and give it the state_dict() of this one to go on";

// Loaders of this process whose destructor has not run. Guarded by the GIL; leaked, like all that the interpreter's end
// may touch.
std::set<LoaderHandle*>& OpenLoaders() {
  static auto* const loaders = new std::set<LoaderHandle*>();
  return *loaders;
}

}  // namespace

Source SourceOf(const std::vector<std::shared_ptr<DatasetHandle>>& datasets) {
  std::vector<Subset> parts;
  for (const std::shared_ptr<DatasetHandle>& dataset : datasets) {
    dataset->CheckOwnProcess();
    parts.push_back(dataset->subset());
  }
  return Source(std::move(parts));
}

MixOptions ToMixOptions(const MixTuple& mix) {
  const auto& [length, stages, draws, fresh_passes] = mix;
  MixOptions options;
  options.length = length;
  for (const auto& [from, weights] : stages) options.stages.push_back({from, ValueOrThrow(MixWeights(weights))});
  options.draws = ValueOrThrow(ParseDraws(draws));
  options.fresh_passes = fresh_passes;
  return options;
}

TokenOptions ToTokenOptions(const TokensTuple& tokens) {
  const auto& [layout, length, buckets, documents, longer, field] = tokens;
  TokenOptions options;
  options.layout = Choose<RowLayout>("layout", layout,
                                     {{"pad", RowLayout::kPad},
                                      {"stream", RowLayout::kStream},
                                      {"pack", RowLayout::kPack},
                                      {"bucket", RowLayout::kPad}});
  options.length = length;
  for (const auto& [row, batch] : buckets) options.buckets.push_back({row, batch});
  options.documents = documents;
  options.longer = ValueOrThrow(ParseLongSamples(longer));
  options.field = field;
  ThrowIfError(options.Check());
  return options;
}

namespace {

Source ItemsOf(const std::vector<std::shared_ptr<DatasetHandle>>& datasets, const std::optional<TokenOptions>& tokens) {
  Source samples = SourceOf(datasets);
  if (!tokens) return samples;
  absl::StatusOr<Source> rows = samples;
  RunInterruptibly(py::none(), [&](const std::stop_token& stop, const ProgressFn&) {
    rows = Source::OfRows(datasets.front()->process()->stores, samples, *tokens, {.stop = stop});
  });
  return ValueOrThrow(std::move(rows));
}

}  // namespace

LoaderHandle::LoaderHandle(std::vector<std::shared_ptr<DatasetHandle>> datasets, LoaderOptions options,
                           const std::optional<TokenOptions>& tokens, std::optional<ServiceOptions> workers)
    : datasets_(std::move(datasets)),
      source_(ItemsOf(datasets_, tokens)),
      options_(std::move(options)),
      workers_(std::move(workers)) {
  absl::StatusOr<std::unique_ptr<BatchSource>> made = nullptr;
  {
    GilRelease release;
    made = MakeLoader(options_);
  }
  loader_.reset(ValueOrThrow(std::move(made)).release());
  Count();
  steps_per_epoch_ = loader_->steps_per_epoch();
  shapes_ = loader_->shapes();
  epoch_ = loader_->report().position.epoch;
  OpenLoaders().insert(this);
}

LoaderHandle::~LoaderHandle() {
  OpenLoaders().erase(this);
  if (maker_ == getpid()) Close();
}

absl::StatusOr<std::unique_ptr<BatchSource>> LoaderHandle::MakeLoader(const LoaderOptions& options) const {
  Runtime& runtime = datasets_.front()->runtime();
  if (workers_) return FeedFromWorkers(runtime, source_, options, *workers_);
  return Loader::Create(runtime, source_, options);
}

void LoaderHandle::Count() {
  counted_.reset(process()->loaders.Count(source_.uri(), *loader_).release());
}

LoaderHandle::Look LoaderHandle::LookForNext() {
  Look look;
  std::unique_lock lock(mutex_);
  if (!unused_.wait_for(lock, kPollSlice, [this] { return !in_use_ && changing_ == 0; })) return look;
  look.closed = loader_ == nullptr;
  if (look.closed) return look;
  in_use_ = true;
  lock.unlock();
  look.ready = loader_->WaitReady(kPollSlice);
  if (look.ready) look.next = loader_->Next();
  lock.lock();
  in_use_ = false;
  if (look.next.ok() && *look.next) epoch_ = (*look.next)->position.epoch;
  unused_.notify_all();
  return look;
}

// When no thread waits for a batch any more. None will before the lock is released.
std::unique_lock<std::mutex> LoaderHandle::LockUnused() {
  std::unique_lock lock(mutex_);
  ++changing_;
  unused_.wait(lock, [this] { return !in_use_; });
  --changing_;
  unused_.notify_all();
  return lock;
}

std::optional<Batch> LoaderHandle::Next() {
  for (;;) {
    CheckOwnProcess();  // each time: a signal handler may fork
    Look look;
    {
      GilRelease release;
      look = LookForNext();
    }
    if (look.closed) ThrowUsage(kClosed);
    if (look.ready) return ValueOrThrow(std::move(look.next));
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

std::optional<std::optional<Batch>> LoaderHandle::Poll() {
  CheckOwnProcess();
  Look look;
  {
    GilRelease release;
    look = LookForNext();
  }
  if (look.closed) ThrowUsage(kClosed);
  if (!look.ready) return std::nullopt;
  return ValueOrThrow(std::move(look.next));
}

void LoaderHandle::Restart(const std::string& position) {
  CheckOwnProcess();
  LoaderOptions options = options_;
  options.start = ValueOrThrow(Position::Parse(position));
  bool closed = false;
  absl::Status status;
  {
    GilRelease release;
    const std::unique_lock lock = LockUnused();
    closed = loader_ == nullptr;
    if (!closed) status = RestartLocked(options);
  }
  if (closed) ThrowUsage(kClosed);
  ThrowIfError(status);
}

absl::Status LoaderHandle::RestartLocked(const LoaderOptions& options) {
  RETURN_IF_ERROR(Loader::Check(source_, options));
  // Then the old one ends first: there may be no room for two.
  last_report_ = loader_->report();
  counted_.reset();
  loader_.reset();
  absl::StatusOr<std::unique_ptr<BatchSource>> made = MakeLoader(options);
  RETURN_IF_ERROR(made.status());
  loader_.reset(made->release());
  Count();
  epoch_ = loader_->report().position.epoch;  // the next one, where what is left of that of `options` is dropped
  return absl::OkStatus();
}

void LoaderHandle::Close() {
  CheckOwnProcess();
  GilRelease release;
  const std::unique_lock lock = LockUnused();
  if (loader_ == nullptr) return;
  last_report_ = loader_->report();
  counted_.reset();
  loader_.reset();
  if (options_.cache != nullptr) options_.cache->Flush();  // the end of the interpreter waits for nothing else
}

void LoaderHandle::CloseAll() {
  const std::set<LoaderHandle*> loaders = OpenLoaders();
  for (LoaderHandle* loader : loaders) {
    // Closing releases the GIL, so another thread may have destroyed this one meanwhile.
    if (OpenLoaders().contains(loader) && loader->maker_ == getpid()) loader->Close();
  }
}

uint64_t LoaderHandle::epoch() {
  CheckOwnProcess();
  GilRelease release;
  std::lock_guard lock(mutex_);
  return epoch_;
}

LoaderReport LoaderHandle::Report() {
  CheckOwnProcess();
  GilRelease release;
  std::lock_guard lock(mutex_);
  return loader_ == nullptr ? last_report_ : loader_->report();
}

const std::optional<CacheForecast>& LoaderHandle::Forecast() {
  static constexpr uint64_t kEpochs = 5;
  static constexpr uint64_t kUnits = 5000;
  GilRelease release;
  std::call_once(forecast_made_, [this] {
    if (options_.cache == nullptr) return;
    CacheForecastOptions wanted{.capacity_bytes = options_.cache->capacity_bytes(), .most_units = kUnits};
    wanted.local_ranks = options_.local_ranks;
    wanted.epochs = options_.epochs == 0 ? kEpochs : std::min(options_.epochs, kEpochs);
    absl::StatusOr<CacheForecast> found = ForecastCache(source_, options_, wanted);
    if (found.ok() && found->Sum().bytes > 0) forecast_ = *std::move(found);
  });
  return forecast_;
}

namespace {

// ---- Options

// Null without a folder, and if it cannot be used. The loaders of a process that name the same folder (or memory) and
// size share one; its threads do not survive a fork. With the GIL held.
std::shared_ptr<DiskCache> OpenCache(std::shared_ptr<Process> process, const std::string& folder,
                                     const std::string& size) {
  if (folder.empty()) return nullptr;
  DiskCacheOptions options{.folder = folder};
  if (!size.empty()) options.size_bytes = ToBytes("cache_size", size);
  static auto& open = *new std::map<std::tuple<pid_t, std::string, uint64_t>, std::weak_ptr<DiskCache>>();
  std::error_code error;
  const std::string path = options.in_memory() ? folder : std::filesystem::weakly_canonical(folder, error).string();
  const std::tuple key(getpid(), error ? folder : path, options.size_bytes);
  std::erase_if(open, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = open.find(key); found != open.end()) {
    if (std::shared_ptr<DiskCache> cache = found->second.lock()) return cache;
  }
  absl::StatusOr<std::unique_ptr<DiskCache>> opened = nullptr;
  if (options.in_memory()) {
    // With the GIL: of two threads that open it at once, the second one finds what the first one has made.
    opened = DiskCache::OpenInMemory(process->runtime.memory(), options.size_bytes);
  } else {
    GilRelease release;
    opened = DiskCache::OpenOrWarn(std::move(options));
  }
  std::unique_ptr<DiskCache> made = ValueOrThrow(std::move(opened));
  if (made == nullptr) return nullptr;
  // One in memory has a part of the process's budget.
  const std::shared_ptr<DiskCache> cache(
      made.release(), [process = std::move(process), own = DeleteInOwnProcess<DiskCache>()](DiskCache* gone) mutable {
        own(gone);
        process.reset();
      });
  open[key] = cache;
  return cache;
}

// (workers, streams, local streams or None for "auto", token file, folder of TLS, name of TLS, whether to compress,
// (name, URI of the data, whether it wants tensors) of a function that they apply)
using WorkersTuple = std::tuple<std::vector<std::string>, py::int_, std::optional<py::int_>, std::string, std::string,
                                std::string, bool, std::optional<std::tuple<std::string, std::string, bool>>>;

ServiceOptions ToServiceOptions(const WorkersTuple& workers) {
  const auto& [places, streams, local_streams, token_file, tls, tls_name, compress, function] = workers;
  ServiceOptions service;
  service.workers = places;
  service.streams = ToNatural("streams", streams);
  service.compress = compress;
  if (function) {
    const auto& [name, uri, wants_tensors] = *function;
    service.function = RowFunction{.name = name, .uri = uri, .wants_tensors = wants_tensors};
  }
  service.local_follows = !local_streams;
  if (local_streams) service.local_streams = ToNatural("local_streams", *local_streams);
  service.token = ValueOrThrow(ReadWorkerToken(token_file));
  if (!tls.empty()) {
    service.tls = ValueOrThrow(ReadWorkerTls(tls));
    service.tls->name = tls_name;
  }
  return service;
}

std::shared_ptr<LoaderHandle> MakeLoaderHandle(
    std::vector<std::shared_ptr<DatasetHandle>> datasets, const std::optional<MixTuple>& mix, const py::int_& batch,
    const ImageTuple& image, const std::vector<FieldTuple>& fields, const std::string& image_field,
    const std::optional<std::string>& label_field, const std::string& label_kind, const std::string& bad_samples,
    const std::string& shuffle, const std::array<std::optional<py::int_>, 3>& order, const py::int_& seed,
    const py::int_& epochs, const py::int_& rank, const py::int_& world, const std::string& last,
    const std::string& memory, const std::string& digest, const std::optional<TokensTuple>& tokens,
    const std::string& token_type, int64_t pad_token, const std::string& cache, const std::string& cache_size, bool pin,
    const py::int_& local_ranks, const std::optional<WorkersTuple>& workers) {
  LoaderOptions options;
  options.image = ToImageSpec(image);
  options.fields = ToFields(fields);
  options.image_field = image_field;
  if (label_field) options.label = LabelOptions{*label_field, ValueOrThrow(LabelSpec::Parse(label_kind))};
  options.bad_samples =
      Choose<BadSamples>("bad_samples", bad_samples,
                         {{"fail", BadSamples::kFail}, {"replace", BadSamples::kReplace}, {"mask", BadSamples::kMask}});
  options.batch = ToNatural("batch_size", batch);
  options.shuffle = ValueOrThrow(ParseShuffle(shuffle));
  const auto natural = [](const char* name, const std::optional<py::int_>& value) {
    return value ? std::optional<uint64_t>(ToNatural(name, *value)) : std::nullopt;
  };
  options.extent = natural("extent", order[0]);
  options.window = natural("window", order[1]);
  options.lanes = natural("lanes", order[2]);
  if (mix) options.mix = ToMixOptions(*mix);
  options.seed = ToNatural("seed", seed);
  options.epochs = ToNatural("epochs", epochs);
  options.rank = ToNatural("rank", rank);
  options.world = ToNatural("world", world);
  options.last = ValueOrThrow(ParseLastBatch(last));
  options.memory_bytes = ToBytes("memory", memory);
  options.digest = Choose<DigestOf>(
      "digest", digest, {{"none", DigestOf::kNone}, {"raw", DigestOf::kRaw}, {"decoded", DigestOf::kDecoded}});
  options.token_type =
      Choose<TokenType>("dtype", token_type, {{"int32", TokenType::kInt32}, {"int64", TokenType::kInt64}});
  options.pad_token = pad_token;
  options.cache = OpenCache(datasets.front()->process(), cache, cache_size);
  options.pin = pin;
  options.local_ranks = ToNatural("local_ranks", local_ranks);
  std::optional<TokenOptions> rows;
  if (tokens) rows = ToTokenOptions(*tokens);
  std::optional<ServiceOptions> service;
  if (workers) service = ToServiceOptions(*workers);
  return std::make_shared<LoaderHandle>(std::move(datasets), std::move(options), rows, std::move(service));
}

// ---- Batches

// [[(name, dtype, dims), ...], ...]
py::list ToList(const std::vector<BatchShape>& shapes) {
  py::list list;
  for (const BatchShape& shape : shapes) {
    py::list arrays;
    for (const ArrayShape& array : shape)
      arrays.append(py::make_tuple(array.name, array.dtype, py::tuple(py::cast(array.dims))));
    list.append(arrays);
  }
  return list;
}

// What the rows of each table are.
py::list RowsList(const LoaderHandle& loader) {
  py::list list;
  for (const LoaderExplanation::Rows& rows : DescribeRows(loader.source())) {
    py::dict entry;
    entry["length"] = rows.length;
    entry["rows"] = rows.counts.rows;
    entry["tokens"] = rows.counts.tokens;
    entry["documents"] = rows.counts.samples;
    entry["truncated"] = rows.counts.truncated;
    entry["empty"] = rows.counts.empty;
    entry["fill"] = rows.counts.Fill(rows.length);
    list.append(entry);
  }
  return list;
}

// _core.Batches: what a `for` loop over a Loader goes through, the rest of one epoch. That all of it is native is what
// makes the position of a Loader exact: Python looks for signals between its own instructions only, so a handler that
// raises (Ctrl-C) cannot come between the step of the position and the loop's variable.
class Batches {
 public:
  Batches(std::shared_ptr<LoaderHandle> loader, py::object convert)
      : loader_(std::move(loader)), converter_(std::move(convert)) {}

  // None if there is none for a while; as __next__ else.
  py::object Poll() {
    if (!epoch_) epoch_ = loader_->epoch();
    if (!ended_ && loader_->epoch() == *epoch_) {
      std::optional<std::optional<Batch>> polled = loader_->Poll();
      if (!polled) return py::none();
      if (*polled) {
        slot_ = (*polled)->slot;
        const BatchShape& shape = loader_->shapes()[(*polled)->shape];
        return converter_.ToDict(shape, loader_->process(), **std::move(polled));
      }
    }
    ended_ = true;
    throw py::stop_iteration();
  }

  // Address and size of the slot of the batch that Poll has given last.
  std::pair<uintptr_t, size_t> slot() const { return {reinterpret_cast<uintptr_t>(slot_.data()), slot_.size()}; }

  py::dict Next() {
    if (!epoch_) epoch_ = loader_->epoch();
    if (!ended_ && loader_->epoch() == *epoch_) {
      if (std::optional<Batch> batch = loader_->Next()) {
        const BatchShape& shape = loader_->shapes()[batch->shape];
        return converter_.ToDict(shape, loader_->process(), *std::move(batch));
      }
    }
    ended_ = true;
    throw py::stop_iteration();
  }

 private:
  std::shared_ptr<LoaderHandle> loader_;
  BatchConverter converter_;
  std::optional<uint64_t> epoch_;
  MutableByteSpan slot_;
  bool ended_ = false;
};

// ---- The report

py::object ToDict(const std::optional<CacheForecast>& forecast) {
  if (!forecast) return py::none();
  py::dict policies;
  for (const auto& [name, hits] :
       {std::pair("ours", &CacheForecast::Policies::ours), std::pair("lru", &CacheForecast::Policies::lru),
        std::pair("optimum", &CacheForecast::Policies::optimum)}) {
    py::list shares;
    for (const CacheForecast::Epoch& epoch : forecast->epochs) {
      const auto bytes = static_cast<double>(std::max<uint64_t>(epoch.bytes, 1));
      shares.append(static_cast<double>(epoch.hits.*hits) / bytes);
    }
    policies[name] = shares;
  }
  return policies;
}

py::dict ToDict(const LoaderReport& report, const std::optional<CacheForecast>& forecast, bool with_digest) {
  py::dict stalls;
  for (size_t i = 0; i < kStallCauses; ++i) {
    stalls[ToPyText(StallCauseName(static_cast<StallCause>(i)))] = report.stalls.seconds[i];
  }
  py::list quarantine;
  for (const QuarantinedSample& bad : report.quarantine) {
    py::dict entry;
    entry["sample"] = ToPyText(bad.uri);
    entry["reason"] = ToPyText(bad.reason);
    entry["replacement"] = ToPyText(bad.replacement);
    entry["epoch"] = bad.epoch;
    quarantine.append(entry);
  }
  py::dict result;
  result["samples"] = report.samples;
  result["tokens"] = report.tokens;
  result["token_places"] = report.token_places;
  result["digest"] = with_digest ? py::object(py::str(report.digest.Hex())) : py::none();
  result["position"] = report.position.ToString();
  result["parts"] = report.part_samples;
  result["seconds"] = report.stalls.elapsed;
  result["waited"] = report.stalls.waited();
  result["stalls"] = stalls;
  result["bottleneck"] = ToPyText(report.stalls.bottleneck());
  result["quarantined"] = report.quarantined;
  result["quarantine"] = quarantine;
  result["cache"] = py::none();
  if (report.cache) {
    py::dict cache;
    cache["hit_bytes"] = report.cache->hit_bytes;
    cache["miss_bytes"] = report.cache->miss_bytes;
    cache["requests"] = report.cache->requests;
    cache["written_bytes"] = report.cache->kept.written_bytes;
    cache["no_room_bytes"] = report.cache->kept.not_admitted_bytes;
    cache["dropped_bytes"] = report.cache->kept.dropped_bytes;
    cache["waiting_bytes"] = report.cache->kept.waiting_bytes;
    cache["memory_bytes"] = report.cache->memory_bytes;
    cache["forecast"] = ToDict(forecast);
    result["cache"] = cache;
  }
  py::list workers;
  for (const WorkerReport& worker : report.workers) {
    py::dict entry;
    entry["worker"] = ToPyText(worker.worker);
    entry["rows"] = worker.rows;
    entry["failures"] = worker.failures;
    entry["last_failure"] = ToPyText(worker.last_failure);
    workers.append(entry);
  }
  result["workers"] = workers;
  return result;
}

}  // namespace

void BindLoader(py::module_& module) {
  const py::array_t<uint8_t> first(0);  // imports what arrays need, which later would be a place for signals
  py::class_<Batches>(module, "Batches")
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", &Batches::Next)
      .def("poll", &Batches::Poll)
      .def_property_readonly("slot", &Batches::slot);
  using Handle = LoaderHandle;
  py::class_<Handle, std::shared_ptr<Handle>>(module, "Loader")
      .def(py::init(&MakeLoaderHandle), py::arg("datasets"), py::kw_only(), py::arg("mix"), py::arg("batch"),
           py::arg("image"), py::arg("fields"), py::arg("image_field"), py::arg("label_field"), py::arg("label_kind"),
           py::arg("bad_samples"), py::arg("shuffle"), py::arg("order"), py::arg("seed"), py::arg("epochs"),
           py::arg("rank"), py::arg("world"), py::arg("last"), py::arg("memory"), py::arg("digest"), py::arg("tokens"),
           py::arg("token_type"), py::arg("pad_token"), py::arg("cache"), py::arg("cache_size"), py::arg("pin"),
           py::arg("local_ranks"), py::arg("workers"))
      .def(
          "batches",
          [](std::shared_ptr<LoaderHandle> self, py::object convert) {
            return Batches(std::move(self), std::move(convert));
          },
          py::arg("convert"))
      .def("restart", &Handle::Restart, py::arg("position"))
      .def("close", &Handle::Close)
      .def("shapes", [](const Handle& self) { return ToList(self.shapes()); })
      .def("rows", &RowsList)
      .def("report",
           [](Handle& self) {
             const LoaderReport report = self.Report();
             return ToDict(report, self.Forecast(), self.with_digest());
           })
      .def_property_readonly("epoch", &Handle::epoch)
      .def_property_readonly("steps_per_epoch", &Handle::steps_per_epoch);
}

}  // namespace millrace::python
