#include "loader_handle.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "errors.h"
#include "gil_release.h"
#include "interruptible.h"
#include "loader_options.h"
#include "pipeline/loader_facts.h"
#include "plan/batching.h"

namespace millrace::python {

namespace {

// A signal waits at most this long.
constexpr std::chrono::milliseconds kPollSlice{50};

constexpr std::string_view kClosed =
    "the Loader is closed; make a new one, and give it the state_dict() of this one to continue";

// Holds the loaders of this process whose destructor has not run. Guarded by the GIL; leaked, like all that the
// interpreter's end may touch.
std::set<LoaderHandle*>& OpenLoaders() {
  static auto* const loaders = new std::set<LoaderHandle*>();
  return *loaders;
}

Source ItemsOf(const std::vector<std::shared_ptr<DatasetHandle>>& datasets, const std::optional<TokenOptions>& tokens) {
  Source samples = SourceOf(datasets);
  if (!tokens) return samples;
  return RunInterruptibly([&](const std::stop_token& stop) {
    return Source::OfRows(datasets.front()->stores(), samples, *tokens, {.stop = stop});
  });
}

CacheReport Sum(const CacheReport& earlier, CacheReport later) {
  later.hit_bytes += earlier.hit_bytes;
  later.miss_bytes += earlier.miss_bytes;
  later.requests += earlier.requests;
  return later;  // the rest counts for all loaders of the process
}

std::vector<WorkerReport> Sum(std::vector<WorkerReport> earlier, const std::vector<WorkerReport>& later) {
  for (const WorkerReport& worker : later) {
    const auto same = std::find_if(earlier.begin(), earlier.end(),
                                   [&](const WorkerReport& other) { return other.worker == worker.worker; });
    if (same == earlier.end()) {
      earlier.push_back(worker);
      continue;
    }
    same->rows += worker.rows;
    same->failures += worker.failures;
    if (!worker.last_failure.empty()) same->last_failure = worker.last_failure;
  }
  return earlier;
}

// Returns the report of a loader that continued where another one ended.
LoaderReport Sum(const LoaderReport& earlier, LoaderReport later) {
  later.samples += earlier.samples;
  later.tokens += earlier.tokens;
  later.token_places += earlier.token_places;
  later.digest += earlier.digest;
  for (size_t part = 0; part < earlier.part_samples.size(); ++part) {
    later.part_samples[part] += earlier.part_samples[part];
  }
  for (size_t cause = 0; cause < kStallCauses; ++cause) later.stalls.seconds[cause] += earlier.stalls.seconds[cause];
  later.stalls.elapsed += earlier.stalls.elapsed;
  later.quarantine.insert(later.quarantine.begin(), earlier.quarantine.begin(), earlier.quarantine.end());
  later.quarantine.resize(std::min(later.quarantine.size(), LoaderReport::kMaxQuarantineEntries));
  later.quarantined += earlier.quarantined;
  later.odd_images += earlier.odd_images;
  if (earlier.cache && later.cache) later.cache = Sum(*earlier.cache, *later.cache);
  later.workers = Sum(earlier.workers, later.workers);
  return later;
}

}  // namespace

LoaderHandle::LoaderHandle(std::vector<std::shared_ptr<DatasetHandle>> datasets, LoaderOptions options,
                           const std::optional<TokenOptions>& tokens, std::optional<ServiceOptions> workers)
    : datasets_(std::move(datasets)),
      source_(ItemsOf(datasets_, tokens)),
      options_(std::move(options)),
      workers_(std::move(workers)),
      epochs_(options_.epochs) {
  RunInterruptibly([this](const std::stop_token& stop) { return CheckSamples(source_, options_, stop); });
  Describe();
}

LoaderHandle::LoaderHandle(std::shared_ptr<StagedHandle> staged, LoaderOptions options)
    : staged_(std::move(staged)),
      facts_(staged_->Describe(options)),
      source_(*facts_->dataset),
      options_(std::move(options)),
      epochs_(options_.epochs) {
  Describe();
  CountFirstStage();
}

LoaderHandle::LoaderHandle(const LoaderHandle& other)
    : datasets_(other.datasets_),
      staged_(other.staged_),
      facts_(other.facts_),
      source_(other.source_),
      options_(other.options_),
      workers_(other.workers_),
      epochs_(options_.epochs) {
  Describe();
}

void LoaderHandle::Describe() {
  LoaderFacts facts = ValueOrThrow(WithoutGil([this]() -> absl::StatusOr<LoaderFacts> {
    if (facts_) return LoaderFacts{.shapes = facts_->shapes, .steps_per_epoch = 0, .start = facts_->start};
    if (workers_) RETURN_IF_ERROR(CheckFeedFromWorkers(source_, options_, *workers_));
    return DescribeLoader(source_, options_);
  }));
  steps_per_epoch_ = facts.steps_per_epoch;
  shapes_ = std::move(facts.shapes);
  epoch_ = facts.start.epoch;
  before_ = BlankReport(facts.start);
  OpenLoaders().insert(this);
}

LoaderHandle::~LoaderHandle() {
  OpenLoaders().erase(this);
  if (maker_ == getpid()) Close();
}

absl::StatusOr<std::unique_ptr<BatchSource>> LoaderHandle::Make(const LoaderOptions& options) const {
  if (staged_ != nullptr) return staged_->Make(options, *facts_);
  Runtime& runtime = datasets_.front()->runtime();
  if (workers_) return FeedFromWorkers(runtime, source_, options, *workers_);
  return Loader::Create(runtime, source_, options);
}

absl::Status LoaderHandle::StartLocked() {
  if (loader_ != nullptr) return absl::OkStatus();
  LoaderOptions options = options_;
  options.start = before_.position;
  options.epochs = epochs_;
  options.log_damage = before_.quarantined == 0;  // once for each loader of the program
  absl::StatusOr<std::unique_ptr<BatchSource>> made = Make(options);
  RETURN_IF_ERROR(made.status());
  loader_.reset(made->release());
  counted_.reset(process()->loaders.Count(source_.uri(), *loader_, program_).release());
  return absl::OkStatus();
}

void LoaderHandle::StopLocked() {
  if (loader_ == nullptr) return;
  before_ = ReportLocked();
  before_.memory = {};
  steps_per_epoch_ = std::max(steps_per_epoch_, loader_->steps_per_epoch());
  counted_.reset();
  loader_.reset();
}

LoaderCounts LoaderHandle::ReportLocked() const {
  LoaderCounts counts = before_;
  if (loader_ != nullptr) static_cast<LoaderReport&>(counts) = Sum(before_, loader_->report());
  counts.conversion_cpu_seconds = std::chrono::duration<double>(std::chrono::nanoseconds(conversion_ns_)).count();
  return counts;
}

LoaderHandle::Look LoaderHandle::LookForNext(uint64_t epoch) {
  Look look;
  std::unique_lock lock(mutex_);
  if (!unused_.wait_for(lock, kPollSlice, [this] { return !in_use_ && changing_ == 0; })) return look;
  look.closed = closed_;
  if (look.closed) return look;
  if (epoch_ != epoch) return {.ready = true};
  if (absl::Status started = StartLocked(); !started.ok()) return {.ready = true, .next = std::move(started)};
  in_use_ = true;
  lock.unlock();
  const auto release = [&] {
    lock.lock();
    in_use_ = false;
    unused_.notify_all();
  };
  try {
    look.ready = loader_->WaitReady(kPollSlice);
    if (look.ready) look.next = loader_->Next();
  } catch (...) {  // Close must not wait for ever
    release();
    throw;
  }
  release();
  if (look.next.ok() && *look.next) epoch_ = (*look.next)->position.epoch;
  return look;
}

// Returns when no thread waits for a batch any more. None will before the lock is released.
std::unique_lock<std::mutex> LoaderHandle::LockUnused() {
  std::unique_lock lock(mutex_);
  ++changing_;
  unused_.wait(lock, [this] { return !in_use_; });
  --changing_;
  unused_.notify_all();
  return lock;
}

std::optional<std::optional<Batch>> LoaderHandle::Poll(uint64_t epoch) {
  CheckOwnProcess();
  Look look = WithoutGil([this, epoch] { return LookForNext(epoch); });
  if (look.closed) ThrowUsage(kClosed);
  if (!look.ready) return std::nullopt;
  return ValueOrThrow(std::move(look.next));
}

std::string LoaderHandle::Settled(const std::string& position) {
  CheckOwnProcess();
  LoaderOptions options = options_;
  options.start = ValueOrThrow(Position::Parse(position));
  bool closed = false;
  absl::StatusOr<Position> start;
  {
    GilRelease release;
    const std::lock_guard lock(mutex_);
    closed = closed_;
    if (!closed && staged_ != nullptr) {
      start = staged_->Settle(options);
    } else if (!closed) {
      absl::StatusOr<LoaderFacts> facts = DescribeLoader(source_, options);
      start = facts.ok() ? absl::StatusOr<Position>(facts->start) : facts.status();
    }
  }
  if (closed) ThrowUsage(kClosed);
  return ValueOrThrow(std::move(start)).ToString();
}

void LoaderHandle::Begin(const std::string& position, uint64_t epochs, const std::shared_ptr<LoaderCounts>& counts) {
  const Position start = ValueOrThrow(Position::Parse(Settled(position)));
  GilRelease release;
  const std::unique_lock lock = LockUnused();
  StopLocked();
  before_ = counts == nullptr ? BlankReport(start) : *counts;
  before_.position = start;
  const std::chrono::duration<double> conversion(before_.conversion_cpu_seconds);
  conversion_ns_ = std::chrono::duration_cast<std::chrono::nanoseconds>(conversion).count();
  epoch_ = start.epoch;
  epochs_ = epochs;
}

void LoaderHandle::Start() {
  CheckOwnProcess();
  bool closed = false;
  absl::Status status;
  {
    GilRelease release;
    const std::unique_lock lock = LockUnused();
    closed = closed_;
    if (!closed) status = StartLocked();
  }
  if (closed) ThrowUsage(kClosed);
  ThrowIfError(status);
}

void LoaderHandle::Stop() {
  CheckOwnProcess();
  GilRelease release;
  const std::unique_lock lock = LockUnused();
  StopLocked();
}

void LoaderHandle::Close() {
  CheckOwnProcess();
  GilRelease release;
  const std::unique_lock lock = LockUnused();
  if (closed_) return;
  closed_ = true;
  StopLocked();
  if (options_.cache != nullptr) options_.cache->Flush();  // the end of the interpreter waits for nothing else
}

void LoaderHandle::CloseAll() {
  const std::set<LoaderHandle*> loaders = OpenLoaders();
  for (LoaderHandle* loader : loaders) {
    // Closing releases the GIL, so another thread may have destroyed this one meanwhile.
    if (OpenLoaders().contains(loader) && loader->maker_ == getpid()) loader->Close();
  }
}

uint64_t LoaderHandle::steps_per_epoch() {
  if (staged_ == nullptr) return steps_per_epoch_;
  CheckOwnProcess();
  GilRelease release;
  std::lock_guard lock(mutex_);
  if (loader_ != nullptr) steps_per_epoch_ = std::max(steps_per_epoch_, loader_->steps_per_epoch());
  return steps_per_epoch_;
}

uint64_t LoaderHandle::counted_steps() const {
  if (!facts_ || facts_->counted == 0) return 0;
  const Batching batching{.samples = facts_->counted,
                          .batch = options_.batch,
                          .rank = options_.rank,
                          .world = options_.world,
                          .last = options_.last};
  return batching.Check().ok() ? batching.StepsFrom(0) : 0;
}

uint64_t LoaderHandle::estimated_steps() {
  uint64_t steps = steps_per_epoch();
  if (steps == 0) steps = counted_steps();
  if (steps > 0 || !facts_) return steps;
  const double samples = static_cast<double>(staged_->total_bytes()) * static_cast<double>(facts_->samples) /
                         static_cast<double>(std::max<uint64_t>(facts_->bytes, 1));
  const double step = static_cast<double>(options_.batch) * static_cast<double>(options_.world);
  return std::max<uint64_t>(static_cast<uint64_t>(std::ceil(samples / step)), 1);
}

uint64_t LoaderHandle::epoch() {
  CheckOwnProcess();
  GilRelease release;
  std::lock_guard lock(mutex_);
  return epoch_;
}

LoaderCounts LoaderHandle::Report() {
  CheckOwnProcess();
  GilRelease release;
  std::lock_guard lock(mutex_);
  return ReportLocked();
}

LoaderCounts LoaderHandle::BlankReport(const Position& start) const {
  LoaderCounts report;
  report.position = start;
  report.part_samples.resize(source_.parts().size());
  if (options_.cache != nullptr) report.cache.emplace();
  return report;
}

// The program has waited for it when the loader was made.
void LoaderHandle::CountFirstStage() {
  if (facts_->cache) before_.cache = facts_->cache;
  before_.stalls.seconds[static_cast<size_t>(StallCause::kIndex)] = facts_->seconds;
  before_.stalls.elapsed = facts_->seconds;
}

const std::optional<CacheForecast>& LoaderHandle::Forecast() {
  static constexpr uint64_t kEpochs = 5;
  static constexpr uint64_t kUnits = 5000;
  GilRelease release;
  std::call_once(forecast_made_, [this] {
    if (options_.cache == nullptr || staged_ != nullptr) return;  // the order of later epochs is not known yet
    CacheForecastOptions wanted{.capacity_bytes = options_.cache->capacity_bytes(), .most_units = kUnits};
    wanted.local_ranks = options_.local_ranks;
    wanted.epochs = options_.epochs == 0 ? kEpochs : std::min(options_.epochs, kEpochs);
    absl::StatusOr<CacheForecast> found = ForecastCache(source_, options_, wanted);
    if (found.ok() && found->Sum().bytes > 0) forecast_ = *std::move(found);
  });
  return forecast_;
}

}  // namespace millrace::python
