#include "pipeline/staged_loader.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <utility>

#include "pipeline/loader_facts.h"

namespace millrace {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kRemedy = "use --start indexed";

ChosenSizes SizesOf(const LoaderOptions& options) {
  return {
      .extent = options.extent.value_or(0), .window = options.window.value_or(0), .lanes = options.lanes.value_or(0)};
}

void AddWaits(const LoaderReport& of, LoaderReport* to) {
  for (size_t i = 0; i < kStallCauses; ++i) to->stalls.seconds[i] += of.stalls.seconds[i];
  if (!of.cache) return;
  if (!to->cache) {
    to->cache = of.cache;
    return;
  }
  to->cache->hit_bytes += of.cache->hit_bytes;
  to->cache->miss_bytes += of.cache->miss_bytes;
  to->cache->requests += of.cache->requests;
  to->cache->kept = of.cache->kept;
}

}  // namespace

StagedLoader::StagedLoader(Runtime& runtime, std::unique_ptr<StagedDataset> data, LoaderOptions options)
    : runtime_(runtime),
      options_(std::move(options)),
      data_(std::move(data)),
      stages_(data_->StagesOf(options_.seed)),
      fingerprint_(
          StagedFingerprint(data_->listing_fingerprint(), options_.shuffle, SizesOf(options_), options_.seed)) {
  report_.part_samples.resize(1);
  report_.position = options_.start.value_or(At(0, 0, 0, 0));
}

absl::StatusOr<std::unique_ptr<StagedLoader>> StagedLoader::Create(Runtime& runtime,
                                                                   std::unique_ptr<StagedDataset> data,
                                                                   LoaderOptions options) {
  std::unique_ptr<StagedLoader> loader(new StagedLoader(runtime, std::move(data), std::move(options)));
  RETURN_IF_ERROR(Annotate(loader->CheckOptions(), loader->data_->uri()));
  RETURN_IF_ERROR(loader->Begin());
  return loader;
}

StagedLoader::~StagedLoader() {
  if (!ended_) stop_.request_stop();  // else the index of what was read is completed
  {
    const Lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

absl::Status StagedLoader::CheckOptions() const {
  const auto refused = [](std::string_view what) {
    return absl::InvalidArgumentError(fmt::format("{} needs the whole index; {}", what, kRemedy));
  };
  if (options_.mix) return refused("a mix");
  if (options_.last == LastBatch::kDrop) return refused("to drop the last batch (drop)");
  if (options_.last == LastBatch::kWrap) return refused("to fill the last batch from the epoch's start (wrap)");
  const Batching batching{.samples = UINT64_MAX,
                          .batch = options_.batch,
                          .rank = options_.rank,
                          .world = options_.world,
                          .last = options_.last};
  RETURN_IF_ERROR(batching.Check());
  if (!options_.start) return absl::OkStatus();
  const Position& start = *options_.start;
  if (!start.stage || start.fingerprint != fingerprint_) {
    return absl::FailedPreconditionError(
        fmt::format("the position {} belongs to another order: the listing (names, sizes, ETags), the seed, the "
                    "shuffle or the start are not those of the run that wrote it (here {:016x})",
                    start.ToString(), fingerprint_));
  }
  const bool misplaced = start.epoch == 0 ? start.stage->number >= stages_.size() : start.stage->number > 0;
  if (misplaced || start.stage->before > Plan::kMaxSamples) {
    return absl::InvalidArgumentError(fmt::format("the position {} lies in a stage that does not exist; there are {}",
                                                  start.ToString(), stages_.size()));
  }
  return absl::OkStatus();
}

// ---- Opening

// The first stage from `stage` on that has samples.
absl::StatusOr<StagedLoader::Opened> StagedLoader::OpenNext(uint64_t stage) {
  Opened opened{.stage = stage, .dataset = nullptr};
  for (; opened.stage < stages_.size(); ++opened.stage) {
    ASSIGN_OR_RETURN(opened.dataset, data_->OpenSome(stages_.ShardsOf(opened.stage)));
    if (opened.dataset->index().size() > 0) {
      LoaderOptions options = options_;
      options.start.reset();
      RETURN_IF_ERROR(CheckSamples(*opened.dataset, std::move(options), data_->stop()));
      return opened;
    }
    opened.dataset = nullptr;
  }
  if (opened.stage > stages_.size()) {
    ASSIGN_OR_RETURN(opened.dataset, data_->OpenAll());
  }
  return opened;
}

absl::Status StagedLoader::Begin() {
  const Position start = options_.start.value_or(At(0, 0, 0, 0));
  ASSIGN_OR_RETURN(Opened first, OpenNext(start.epoch > 0 ? stages_.size() + 1 : start.stage->number));
  if (first.dataset == nullptr) {  // the epoch has no more samples
    ASSIGN_OR_RETURN(first, OpenNext(stages_.size() + 1));
    RETURN_IF_ERROR(Enter(std::move(first), 0, At(1, 0, 0, 0)));
  } else {
    RETURN_IF_ERROR(Enter(std::move(first), start.stage->before, start));
  }
  shapes_ = loader_->shapes();
  if (!in_stages()) return absl::OkStatus();
  completes_index_ = options_.epochs != 1 || start.stage->number == 0;
  data_->Continue(stop_.get_token());
  thread_ = std::thread([this, next = stage_ + 1] { OpenAhead(next); });
  pthread_setname_np(thread_.native_handle(), "stages");
  return absl::OkStatus();
}

void StagedLoader::OpenAhead(uint64_t stage) {
  while (true) {
    absl::StatusOr<Opened> opened = OpenNext(stage);
    const bool last = !opened.ok() || opened->stage > stages_.size();
    if (opened.ok()) stage = opened->stage + 1;
    Lock lock(mutex_);
    changed_.wait(lock, [this] { return stopping_ || !opened_; });
    if (stopping_) return;
    opened_ = std::move(opened);
    changed_.notify_all();
    if (last) return;
    // One stage ahead, and the whole as soon as all stages have been opened.
    if (!(*opened_)->dataset) {
      if (!completes_index_ || (options_.epochs == 1 && !data_->keeps_parts())) return;
      continue;
    }
    changed_.wait(lock, [this] { return stopping_ || !opened_; });
    if (stopping_) return;
  }
}

absl::StatusOr<StagedLoader::Opened> StagedLoader::Take() {
  Lock lock(mutex_);
  ledger_.Begin(Clock::now());
  changed_.wait(lock, [this] { return opened_.has_value(); });
  ledger_.Charge(StallCause::kIndex, Clock::now());
  absl::StatusOr<Opened> opened = *std::move(opened_);
  opened_.reset();
  changed_.notify_all();
  return opened;
}

absl::StatusOr<std::unique_ptr<Loader>> StagedLoader::MakeLoader(const Dataset& dataset, uint64_t before,
                                                                 const Position& start) {
  LoaderOptions options = options_;
  const bool staged = start.epoch == 0;
  options.keyed_by_place = true;
  options.numbered = !staged;
  options.memory_bytes = staged ? options_.memory_bytes / 8 * 3 : options_.memory_bytes / 4 * 3;
  if (staged) {
    options.epochs = 1;
    options.rank = (options_.rank + options_.world - before % options_.world) % options_.world;
  }
  options.start.reset();
  ASSIGN_OR_RETURN(const LoaderFacts facts, DescribeLoader(dataset, options));
  if (!shapes_.empty() && facts.shapes != shapes_) {
    return absl::FailedPreconditionError(fmt::format(
        "{}: samples of a later stage have other fields than those of the first one; {}", data_->uri(), kRemedy));
  }
  options.start = Position{start.epoch, start.consumed, facts.start.fingerprint};
  return Loader::Create(runtime_, dataset, std::move(options));
}

absl::Status StagedLoader::Enter(Opened opened, uint64_t before, const Position& start) {
  absl::StatusOr<std::unique_ptr<Loader>> loader = MakeLoader(*opened.dataset, before, start);
  if (!loader.ok() && !shapes_.empty()) return Annotate(loader.status(), fmt::format("in a later stage ({})", kRemedy));
  RETURN_IF_ERROR(loader.status());
  stage_ = opened.stage;
  before_ = before;
  dataset_ = std::move(opened.dataset);
  const Lock lock(mutex_);
  loader_ = *std::move(loader);
  if (!in_stages()) samples_per_epoch_ = dataset_->index().size();
  return absl::OkStatus();
}

void StagedLoader::Leave() {
  std::unique_ptr<Loader> ended;
  {
    const Lock lock(mutex_);
    ended = std::move(loader_);
    AddWaits(ended->report(), &report_);
  }
  ended.reset();
  dataset_.reset();
}

// ---- Delivering

// True if the next step of the consumer needs what the thread has not opened yet.
bool StagedLoader::WaitsForStage() const {
  if (ended_ || !failed_.ok()) return false;
  if (loader_ == nullptr) return true;
  return in_stages() && pulled_ && pulled_->ok() && (*pulled_)->has_value() && (**pulled_)->last_of_epoch;
}

bool StagedLoader::WaitReady(std::chrono::nanoseconds limit) {
  const auto deadline = Clock::now() + limit;
  if (loader_ != nullptr && !pulled_ && failed_.ok() && !ended_) {
    if (!loader_->WaitReady(limit)) return false;
    pulled_ = loader_->Next();
  }
  if (!WaitsForStage()) return true;
  Lock lock(mutex_);
  ledger_.Begin(Clock::now());
  const bool ready = changed_.wait_until(lock, deadline, [this] { return opened_.has_value(); });
  ledger_.Charge(StallCause::kIndex, Clock::now());
  return ready;
}

// Completes what a batch of a stage says, and turns to the next stage after its last one. If that cannot be opened,
// this batch is the last one.
void StagedLoader::FinishBatch(Batch* batch) {
  if (!in_stages()) {
    batch->position = At(batch->position.epoch, batch->position.consumed, 0, 0);
    return;
  }
  if (!batch->last_of_epoch) {
    batch->position = At(0, batch->position.consumed, stage_, before_);
    return;
  }
  const uint64_t after = before_ + dataset_->index().size();
  absl::StatusOr<Opened> next = Take();
  Leave();
  if (next.ok() && next->dataset == nullptr) {
    batch->position = At(1, 0, 0, 0);
    stage_ = stages_.size();
    ended_ = options_.epochs == 1;
    return;
  }
  batch->last_of_epoch = false;
  batch->position = At(0, 0, next.ok() ? next->stage : stage_ + 1, after);
  const Position start = batch->position;
  failed_ = next.ok() ? Enter(*std::move(next), after, start) : next.status();
}

absl::StatusOr<std::optional<Batch>> StagedLoader::Next() {
  if (!failed_.ok()) return failed_;
  if (ended_) return std::nullopt;
  {
    const Lock lock(mutex_);
    ledger_.Begin(Clock::now());
  }
  if (loader_ == nullptr) {  // the first epoch is over
    absl::StatusOr<Opened> whole = Take();
    failed_ = whole.status();
    if (failed_.ok()) failed_ = Enter(*std::move(whole), 0, At(1, 0, 0, 0));
    if (!failed_.ok()) return failed_;
  }
  if (!pulled_) pulled_ = loader_->Next();
  Pulled pulled = *std::move(pulled_);
  pulled_.reset();
  if (!pulled.ok() || !*pulled) return pulled;
  FinishBatch(&**pulled);
  const Lock lock(mutex_);
  report_.Add(**pulled);
  ledger_.End(Clock::now());
  return pulled;
}

LoaderReport StagedLoader::report() const {
  const Lock lock(mutex_);
  LoaderReport report = report_;
  const StallReport own = ledger_.report();
  report.stalls.elapsed = own.elapsed;
  const auto index = static_cast<size_t>(StallCause::kIndex);
  report.stalls.seconds[index] += own.seconds[index];
  if (loader_ != nullptr) AddWaits(loader_->report(), &report);
  return report;
}

uint64_t StagedLoader::steps_per_epoch() const {
  const Lock lock(mutex_);
  return samples_per_epoch_ == 0 || loader_ == nullptr ? 0 : loader_->steps_per_epoch();
}

uint64_t StagedLoader::samples_per_epoch() const {
  const Lock lock(mutex_);
  return samples_per_epoch_;
}

}  // namespace millrace
