#include "pipeline/staged_loader.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "pipeline/loader_facts.h"

namespace millrace {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kRemedy = StagedDataset::kRemedy;

ChosenSizes SizesOf(const LoaderOptions& options) {
  return {
      .extent = options.extent.value_or(0), .window = options.window.value_or(0), .lanes = options.lanes.value_or(0)};
}

void AddCache(const CacheReport& of, std::optional<CacheReport>* to) {
  if (!*to) {
    *to = of;
    return;
  }
  (*to)->hit_bytes += of.hit_bytes;
  (*to)->miss_bytes += of.miss_bytes;
  (*to)->requests += of.requests;
}

void AddWaits(const LoaderReport& of, LoaderReport* to) {
  for (size_t i = 0; i < kStallCauses; ++i) to->stalls.seconds[i] += of.stalls.seconds[i];
  if (!of.cache) return;
  AddCache(*of.cache, &to->cache);
  to->cache->memory_bytes = of.cache->memory_bytes;
  to->cache->kept = of.cache->kept;
}

// The way that shards are read to be indexed, so that they are in the cache when their samples are delivered.
std::shared_ptr<CachedStore> CacheAround(StagedDataset& data, const LoaderOptions& options) {
  if (options.cache == nullptr || data.store().traits().is_memory()) return nullptr;
  return std::make_shared<CachedStore>(data.store(), *options.cache);
}

// The first stage from `stage` on that has samples.
struct FoundStage {
  uint64_t stage = 0;
  std::unique_ptr<Dataset> dataset;
};
absl::StatusOr<FoundStage> FindStage(StagedDataset& data, const Stages& stages, const LoaderOptions& options,
                                     uint64_t stage) {
  FoundStage found{.stage = stage, .dataset = nullptr};
  for (; found.stage < stages.size(); ++found.stage) {
    ASSIGN_OR_RETURN(found.dataset, data.OpenSome(stages.ShardsOf(found.stage)));
    if (found.dataset->index().size() > 0) {
      LoaderOptions checked = options;
      checked.start.reset();
      RETURN_IF_ERROR(CheckSamples(*found.dataset, std::move(checked), data.stop()));
      return found;
    }
    found.dataset = nullptr;
  }
  if (found.stage > stages.size()) {
    ASSIGN_OR_RETURN(found.dataset, data.OpenAll());
  }
  return found;
}

absl::Status CheckOptions(const LoaderOptions& options) {
  const auto refused = [](std::string_view what) {
    return absl::InvalidArgumentError(fmt::format("{} needs the whole index; {}", what, kRemedy));
  };
  if (options.mix) return refused("a mix");
  if (options.last == LastBatch::kDrop) return refused("to drop the last batch (drop)");
  if (options.last == LastBatch::kWrap) return refused("to fill the last batch from the epoch's start (wrap)");
  const Batching batching{.samples = UINT64_MAX,
                          .batch = options.batch,
                          .rank = options.rank,
                          .world = options.world,
                          .last = options.last};
  return batching.Check();
}

// In the first epoch, samples have no numbers, and a loader delivers one stage.
LoaderOptions OptionsOf(const LoaderOptions& staged, uint64_t epoch, uint64_t before) {
  LoaderOptions options = staged;
  options.keyed_by_place = true;
  options.numbered = epoch > 0;
  options.memory_bytes = epoch > 0 ? staged.memory_bytes / 4 * 3 : staged.memory_bytes / 8 * 3;
  options.start.reset();
  if (epoch > 0) return options;
  options.epochs = 1;
  options.rank = (staged.rank + staged.world - before % staged.world) % staged.world;
  return options;
}

}  // namespace

// ---- Before it begins

absl::StatusOr<Position> SettleStaged(const StagedDataset& data, const LoaderOptions& options) {
  RETURN_IF_ERROR(Annotate(CheckOptions(options), data.uri()));
  const uint64_t fingerprint =
      StagedFingerprint(data.listing_fingerprint(), options.shuffle, SizesOf(options), options.seed);
  if (!options.start) return Position{0, 0, fingerprint, Position::Stage{}};
  const Position& start = *options.start;
  if (!start.stage || start.fingerprint != fingerprint) {
    return absl::FailedPreconditionError(
        fmt::format("{}: the position {} belongs to another order: the listing (names, sizes, ETags), the seed, the "
                    "shuffle or the start are not those of the run that wrote it (here {:016x})",
                    data.uri(), start.ToString(), fingerprint));
  }
  const uint64_t stages = data.StagesOf(options.seed).size();
  const bool misplaced = start.epoch == 0 ? start.stage->number >= stages : start.stage->number > 0;
  if (misplaced || start.stage->before > Plan::kMaxSamples) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: the position {} lies in a stage that does not exist; there are {}", data.uri(), start.ToString(), stages));
  }
  return start;
}

absl::StatusOr<StagedFacts> DescribeStaged(StagedDataset& data, const LoaderOptions& options) {
  StagedFacts facts;
  ASSIGN_OR_RETURN(facts.start, SettleStaged(data, options));
  const std::shared_ptr<CachedStore> cached = CacheAround(data, options);
  data.ReadThrough(cached);
  const Stages stages = data.StagesOf(options.seed);
  facts.asked = facts.start.epoch > 0 ? stages.size() + 1 : facts.start.stage->number;
  absl::StatusOr<FoundStage> found = FindStage(data, stages, options, facts.asked);
  // The shapes are those of any samples.
  if (found.ok() && found->dataset == nullptr) found = FindStage(data, stages, options, stages.size() + 1);
  data.ReadThrough(nullptr);
  RETURN_IF_ERROR(found.status());
  if (cached != nullptr) facts.cache = cached->report();
  const bool in_stages = found->stage < stages.size();
  ASSIGN_OR_RETURN(const LoaderFacts described,
                   DescribeLoader(*found->dataset, OptionsOf(options, in_stages ? 0 : 1, 0)));
  facts.shapes = described.shapes;
  facts.stage = found->stage;
  facts.samples = found->dataset->index().size();
  facts.bytes = in_stages ? data.BytesOf(stages.ShardsOf(found->stage)) : data.total_bytes();
  facts.dataset = std::move(found->dataset);
  return facts;
}

StagedLoader::StagedLoader(Runtime& runtime, std::unique_ptr<StagedDataset> data, LoaderOptions options,
                           StagedFacts facts)
    : runtime_(runtime),
      options_(std::move(options)),
      data_(std::move(data)),
      stages_(data_->StagesOf(options_.seed)),
      shapes_(std::move(facts.shapes)),
      start_(facts.start),
      completes_index_(options_.epochs != 1 || start_.epoch > 0 || start_.stage->number == 0),
      cached_(CacheAround(*data_, options_)),
      entry_{.before = start_.stage->before, .start = start_} {
  report_.part_samples.resize(1);
  report_.position = start_;
  report_.cache = facts.cache;
  if (options_.cache != nullptr && !report_.cache) report_.cache.emplace();
  data_->ReadThrough(cached_);
}

absl::StatusOr<std::unique_ptr<StagedLoader>> StagedLoader::Create(Runtime& runtime,
                                                                   std::unique_ptr<StagedDataset> data,
                                                                   LoaderOptions options,
                                                                   std::optional<StagedFacts> facts) {
  if (facts) {
    ASSIGN_OR_RETURN(facts->start, SettleStaged(*data, options));
    facts->cache.reset();  // they were counted
  } else {
    ASSIGN_OR_RETURN(facts, DescribeStaged(*data, options));
  }
  std::unique_ptr<StagedLoader> loader(new StagedLoader(runtime, std::move(data), std::move(options), *facts));
  RETURN_IF_ERROR(loader->Begin(*facts));
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

// ---- Opening

absl::Status StagedLoader::Begin(const StagedFacts& facts) {
  uint64_t first = start_.epoch > 0 ? stages_.size() + 1 : start_.stage->number;
  const bool is_open = facts.asked == first && (facts.stage < stages_.size()) == (start_.epoch == 0);
  if (is_open) {
    next_ = Opened{.stage = facts.stage, .dataset = facts.dataset};
    RETURN_IF_ERROR(Enter());
    if (!in_stages()) return absl::OkStatus();
    first = stage_ + 1;
  }
  data_->Continue(stop_.get_token());
  thread_ = std::thread([this, first, is_open] { OpenAhead(first, /*begins=*/!is_open); });
  pthread_setname_np(thread_.native_handle(), "stages");
  return absl::OkStatus();
}

absl::StatusOr<StagedLoader::Opened> StagedLoader::OpenStage(uint64_t* stage, bool begins) const {
  try {
    ASSIGN_OR_RETURN(FoundStage found, FindStage(*data_, stages_, options_, *stage));
    *stage = found.stage + 1;
    Opened opened{.stage = found.stage, .dataset = std::move(found.dataset)};
    // Samples are fetched before the consumer asks. If this fails, the consumer tries again, and says why.
    if (begins && opened.dataset != nullptr) {
      if (auto loader = MakeLoader(*opened.dataset, entry_); loader.ok()) opened.loader = *std::move(loader);
    }
    return opened;
  } catch (const std::exception& error) {  // memory is exhausted; this thread must not end the process
    return absl::ResourceExhaustedError(fmt::format("opening a stage failed: {}", error.what()));
  }
}

void StagedLoader::OpenAhead(uint64_t stage, bool begins) {
  for (;; begins = false) {
    absl::StatusOr<Opened> opened = OpenStage(&stage, begins);
    const bool last = !opened.ok() || opened->stage > stages_.size();
    const bool none = opened.ok() && opened->dataset == nullptr;
    Lock lock(mutex_);
    changed_.wait(lock, [this] { return stopping_ || !opened_; });
    if (stopping_) return;
    opened_ = std::move(opened);
    changed_.notify_all();
    if (last) return;
    // One stage ahead, and the whole as soon as all stages have been opened.
    if (none) {
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

absl::StatusOr<std::unique_ptr<Loader>> StagedLoader::MakeLoader(const Dataset& dataset, const Entry& at) const {
  LoaderOptions options = OptionsOf(options_, at.start.epoch, at.before);
  ASSIGN_OR_RETURN(const LoaderFacts facts, DescribeLoader(dataset, options));
  if (facts.shapes != shapes_) {
    return absl::FailedPreconditionError(fmt::format(
        "{}: samples of a later stage have other fields than those of the first one; {}", data_->uri(), kRemedy));
  }
  options.start = Position{at.start.epoch, at.start.consumed, facts.start.fingerprint};
  return Loader::Create(runtime_, dataset, std::move(options));
}

// Begins to read what was taken from the thread. If there is too little memory, it can be called again.
absl::Status StagedLoader::Enter() {
  if (next_->loader == nullptr) {
    absl::StatusOr<std::unique_ptr<Loader>> loader = MakeLoader(*next_->dataset, entry_);
    if (!loader.ok() && entered_) return Annotate(loader.status(), fmt::format("in a later stage ({})", kRemedy));
    RETURN_IF_ERROR(loader.status());
    next_->loader = *std::move(loader);
  }
  entered_ = true;
  stage_ = next_->stage;
  before_ = entry_.before;
  dataset_ = std::move(next_->dataset);
  const Lock lock(mutex_);
  loader_ = std::move(next_->loader);
  next_.reset();
  if (!in_stages()) samples_per_epoch_ = dataset_->index().size();
  return absl::OkStatus();
}

// Waits for what the thread opens next, and turns to it.
absl::Status StagedLoader::EnterNext() {
  if (!next_) {
    ASSIGN_OR_RETURN(Opened opened, Take());
    if (opened.dataset == nullptr) {  // the first epoch has no more samples
      entry_ = {.before = 0, .start = At(1, 0, 0, 0)};
      ended_ = options_.epochs == 1;
      return absl::OkStatus();
    }
    next_ = std::move(opened);
  }
  return Enter();
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

bool StagedLoader::WaitOpened(Clock::time_point deadline) {
  Lock lock(mutex_);
  ledger_.Begin(Clock::now());
  const bool ready = changed_.wait_until(lock, deadline, [this] { return opened_.has_value(); });
  ledger_.Charge(StallCause::kIndex, Clock::now());
  return ready;
}

bool StagedLoader::WaitReady(std::chrono::nanoseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (loader_ == nullptr && failed_.ok() && !ended_) {
    if (!next_ && !WaitOpened(deadline)) return false;
    const absl::Status entered = EnterNext();
    if (absl::IsResourceExhausted(entered)) return true;  // Next tries again
    failed_ = entered;
  }
  if (!failed_.ok() || ended_) return true;
  if (!pulled_) {
    if (!loader_->WaitReady(std::max(deadline - Clock::now(), Clock::duration::zero()))) return false;
    pulled_ = loader_->Next();
  }
  const bool turns = in_stages() && pulled_->ok() && (*pulled_)->has_value() && (**pulled_)->last_of_epoch;
  return !turns || WaitOpened(deadline);
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
    entry_ = {.before = 0, .start = batch->position};
    stage_ = stages_.size();
    ended_ = options_.epochs == 1;
    return;
  }
  batch->last_of_epoch = false;
  batch->position = At(0, 0, next.ok() ? next->stage : stage_ + 1, after);
  entry_ = {.before = after, .start = batch->position};
  if (!next.ok()) {
    failed_ = next.status();
    return;
  }
  next_ = *std::move(next);
  failed_ = Enter();
  if (absl::IsResourceExhausted(failed_)) failed_ = absl::OkStatus();  // the next call tries again
}

absl::StatusOr<std::optional<Batch>> StagedLoader::Next() {
  if (!failed_.ok()) return failed_;
  if (ended_) return std::nullopt;
  {
    const Lock lock(mutex_);
    ledger_.Begin(Clock::now());
  }
  while (loader_ == nullptr) {
    absl::Status entered = EnterNext();
    if (!entered.ok()) {
      if (!absl::IsResourceExhausted(entered)) failed_ = entered;
      return entered;
    }
    if (ended_) return std::nullopt;
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
  if (loader_ != nullptr) {
    const LoaderReport now = loader_->report();
    AddWaits(now, &report);
    report.memory = now.memory;
  }
  if (cached_ != nullptr) AddCache(cached_->report(), &report.cache);
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
