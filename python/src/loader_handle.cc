#include "loader_handle.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "errors.h"
#include "gil_release.h"
#include "interruptible.h"
#include "loader_options.h"

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

Source ItemsOf(const std::vector<std::shared_ptr<DatasetHandle>>& datasets, const std::optional<TokenOptions>& tokens) {
  Source samples = SourceOf(datasets);
  if (!tokens) return samples;
  return RunInterruptibly([&](const std::stop_token& stop) {
    return Source::OfRows(datasets.front()->process()->stores, samples, *tokens, {.stop = stop});
  });
}

}  // namespace

LoaderHandle::LoaderHandle(std::vector<std::shared_ptr<DatasetHandle>> datasets, LoaderOptions options,
                           const std::optional<TokenOptions>& tokens, std::optional<ServiceOptions> workers)
    : datasets_(std::move(datasets)),
      source_(ItemsOf(datasets_, tokens)),
      options_(std::move(options)),
      workers_(std::move(workers)) {
  loader_.reset(ValueOrThrow(WithoutGil([this] { return MakeLoader(options_); })).release());
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

std::optional<std::optional<Batch>> LoaderHandle::Poll() {
  CheckOwnProcess();
  Look look = WithoutGil([this] { return LookForNext(); });
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

}  // namespace millrace::python
