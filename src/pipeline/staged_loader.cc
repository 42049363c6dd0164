#include "pipeline/staged_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "pipeline/batch_layout.h"
#include "pipeline/loader_facts.h"

namespace millrace {

namespace {

using Clock = std::chrono::steady_clock;

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

std::chrono::nanoseconds LeftUntil(Clock::time_point deadline) {
  return std::max<std::chrono::nanoseconds>(deadline - Clock::now(), std::chrono::nanoseconds::zero());
}

// Moves the samples of `from` to the end of `to`.
void Append(Batch from, Batch* to) {
  to->value_bytes += from.value_bytes;
  to->digest += from.digest;
  to->odd_images += from.odd_images;
  std::move(from.quarantined.begin(), from.quarantined.end(), std::back_inserter(to->quarantined));
  const uint64_t rows = from.valid;
  CopyRows(std::move(from), rows, to, to->valid);
  to->valid += rows;
}

}  // namespace

StagedLoader::StagedLoader(Runtime& runtime, std::unique_ptr<StagedDataset> data, LoaderOptions options,
                           StagedFacts facts)
    : runtime_(runtime),
      options_(std::move(options)),
      data_(std::move(data)),
      again_(data_->Again()),
      stages_(data_->StagesOf(options_.seed)),
      shapes_(std::move(facts.shapes)),
      start_(facts.start),
      origin_(start_.epoch > 0 ? 0 : start_.stage->before + start_.consumed),
      cached_(CacheAround(*data_, options_)),
      entry_{.before = start_.stage->before, .start = start_},
      // Otherwise shards of stages before the first one would be read for nothing else.
      opener_(*data_, stages_, options_,
              /*completes_index=*/options_.epochs != 1 || start_.epoch > 0 || start_.stage->number == 0) {
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
  if (ended_) opener_.Complete();
}

absl::Status StagedLoader::Begin(const StagedFacts& facts) {
  const uint64_t first = start_.epoch > 0 ? stages_.size() + 1 : start_.stage->number;
  if (facts.asked == first && (facts.stage < stages_.size()) == (start_.epoch == 0)) {
    next_ = OpenedStage{.stage = facts.stage, .dataset = facts.dataset};
    RETURN_IF_ERROR(Enter());
    if (in_stages()) opener_.Start(stage_ + 1, nullptr);
    return absl::OkStatus();
  }
  opener_.Start(first, [this, at = entry_](const Dataset& dataset) { return MakeLoader(dataset, at); });
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Loader>> StagedLoader::MakeLoader(const Dataset& dataset, const Entry& at) const {
  LoaderOptions options = StageOptions(options_, at.start.epoch, at.before);
  if (at.start.epoch == 0 && at.start.consumed == 0) options.begun = InStep(at.before);
  ASSIGN_OR_RETURN(const LoaderFacts facts, DescribeStage(dataset, options));
  if (facts.shapes != shapes_) {
    return absl::FailedPreconditionError(
        fmt::format("{}: samples of a later stage have other fields than those of the first one; {}", data_->uri(),
                    StagedDataset::kRemedy));
  }
  options.start = Position{at.start.epoch, at.start.consumed, facts.start.fingerprint};
  return Loader::Create(runtime_, dataset, std::move(options));
}

// ---- A stage and the next one

// Returns true when the next stage, or an error, can be taken. The memory that was lacking when the stage was opened
// may be free by now: it is opened again, once for each call of Next.
bool StagedLoader::WaitOpened(Time deadline) {
  if (!next_ && opener_.ready()) TakeNext();
  if (next_ && !retried_ && absl::IsResourceExhausted(next_->status())) {
    next_.reset();
    opener_.Retry();
    retried_ = true;
  }
  if (next_) return true;
  {
    const Lock lock(mutex_);
    ledger_.Begin(Clock::now());
  }
  const bool ready = opener_.Wait(deadline);
  const Lock lock(mutex_);
  ledger_.Charge(StallCause::kIndex, Clock::now());
  return ready;
}

void StagedLoader::TakeNext() {
  if (!next_) next_ = opener_.Take();
}

// Begins to read an opened stage. If there is too little memory, it can be called again.
absl::Status StagedLoader::Enter() {
  OpenedStage& next = **next_;
  if (next.loader == nullptr) {
    absl::StatusOr<std::unique_ptr<Loader>> loader = MakeLoader(*next.dataset, entry_);
    RETURN_IF_ERROR(entered_ ? InLaterStage(loader.status()) : loader.status());
    next.loader = *std::move(loader);
  }
  entered_ = true;
  retried_ = false;
  tried_early_ = false;
  stage_ = next.stage;
  before_ = entry_.before;
  dataset_ = std::move(next.dataset);
  const Lock lock(mutex_);
  loader_ = std::move(next.loader);
  next_.reset();
  if (!in_stages()) samples_per_epoch_ = stage_samples();
  return absl::OkStatus();
}

void StagedLoader::EnterNext() {
  TakeNext();
  if (!next_->ok()) return Fail(next_->status());
  const OpenedStage& next = **next_;
  if (next.dataset == nullptr) {
    next_.reset();
    return EndStages();
  }
  if (drops_ && next.stage < stages_.size()) return next_.reset();
  if (const absl::Status entered = Enter(); !entered.ok()) Fail(entered);
}

// Ends a stage. Its data set stays until the next one is entered.
void StagedLoader::Leave() {
  const uint64_t after = before_ + stage_samples();
  entry_ = {.before = after, .start = At(0, 0, stage_ + 1, after)};
  std::unique_ptr<Loader> ended;
  const Lock lock(mutex_);
  ended = std::move(loader_);
  AddWaits(ended->report(), &report_);
}

// Fetches samples of the next stage while the last batches of this one are delivered, which has `left` samples: few
// enough to be in memory by now.
void StagedLoader::BeginNextEarly(uint64_t left) {
  const double bytes = static_cast<double>(left / options_.world) * dataset_->index().mean_span_bytes();
  if (tried_early_ || bytes > static_cast<double>(options_.memory_bytes / 8)) return;
  if (options_.memory_bytes > runtime_.memory().limit() / 2) return;  // indexing needs the room
  if (!next_ && !opener_.ready()) return;
  tried_early_ = true;
  TakeNext();
  if (!next_->ok() || (*next_)->dataset == nullptr) return;
  const uint64_t before = before_ + stage_samples();
  auto loader = MakeLoader(*(*next_)->dataset, {.before = before, .start = At(0, 0, (*next_)->stage, before)});
  if (loader.ok()) (*next_)->loader = *std::move(loader);  // else Enter tries again, and says why
}

// ---- Delivering

// Returns true if there is something for Next.
bool StagedLoader::Advance(Time deadline) {
  while (!ready_) {
    if (at_end_) {
      if (!FillLast(deadline)) return false;
    } else if (loader_ == nullptr) {
      if (!WaitOpened(deadline)) return false;
      EnterNext();
    } else {
      if (!pulled_) {
        if (!loader_->WaitReady(LeftUntil(deadline))) return false;
        pulled_ = loader_->Next();
      }
      if (NeedsNext()) {
        if (!WaitOpened(deadline)) return false;
        TakeNext();
        if (absl::IsResourceExhausted(next_->status())) {  // the batch is delivered when the stage is opened
          Fail(next_->status());
          continue;
        }
      }
      Receive();
    }
  }
  return true;
}

// Returns true if the pulled batch cannot be delivered before it is known whether there is a next stage.
bool StagedLoader::NeedsNext() const {
  if (!in_stages() || !pulled_->ok() || !(*pulled_)->has_value()) return false;
  const Batch& batch = ***pulled_;
  if (batch.last_of_epoch) return InStep(before_ + stage_samples()) == 0;
  return options_.last == LastBatch::kDrop && stage_samples() - batch.position.consumed < step();
}

// Returns true if the step is full, and no later one is, after which this stage has `left` samples.
bool StagedLoader::IsLastFull(uint64_t left) const {
  if (options_.last != LastBatch::kDrop || left >= step() || !next_->ok()) return false;
  return left + ((*next_)->dataset == nullptr ? 0 : (*next_)->reach) < step();
}

void StagedLoader::Receive() {
  Pulled pulled = *std::move(pulled_);
  pulled_.reset();
  if (!pulled.ok()) return Fail(pulled.status());
  if (!*pulled) {
    ended_ = true;
    ready_ = Pulled(std::nullopt);
    return;
  }
  Batch batch = **std::move(pulled);
  if (in_stages()) return ReceiveOfStage(std::move(batch));
  batch.position = At(batch.position.epoch, batch.position.consumed, 0, 0);
  ready_ = Pulled(std::move(batch));
}

void StagedLoader::ReceiveOfStage(Batch batch) {
  const bool ends = batch.last_of_epoch;
  const uint64_t after = ends ? stage_samples() : batch.position.consumed;
  if (begun_) {
    Batch whole = *std::move(begun_);
    begun_.reset();
    Append(std::move(batch), &whole);
    batch = std::move(whole);
  }
  batch.last_of_epoch = false;
  if (ends) return EndStage(std::move(batch), InStep(before_ + after) == 0);
  batch.position = At(0, after, stage_, before_);
  const uint64_t left = stage_samples() - after;
  if (IsLastFull(left)) {
    Leave();
    return EndEpoch(std::move(batch));
  }
  ready_ = Pulled(std::move(batch));
  BeginNextEarly(left);
}

// Ends a stage with its last batch. If the batch is not full, the next stage or the end of the epoch completes it.
void StagedLoader::EndStage(Batch batch, bool full) {
  Leave();
  if (!full) {
    begun_ = std::move(batch);
    return;
  }
  const bool is_last = next_->ok() && (*next_)->dataset == nullptr;
  if (is_last || IsLastFull(0)) return EndEpoch(std::move(batch));
  if (next_->ok()) entry_.start = At(0, 0, (*next_)->stage, entry_.before);
  batch.position = entry_.start;
  ready_ = Pulled(std::move(batch));
}

// Ends with an error. ResourceExhausted may pass, and then the same is tried again.
void StagedLoader::Fail(const absl::Status& status) {
  if (!absl::IsResourceExhausted(status)) failed_ = status;
  retried_ = false;
  ready_ = Pulled(status);
}

// ---- The end of the first epoch

// Ends the epoch with its last batch. Samples of later stages are dropped.
void StagedLoader::EndEpoch(Batch batch) {
  if (next_ && next_->ok() && (*next_)->dataset == nullptr) {
    next_.reset();
    EndStages();
  }
  batch.last_of_epoch = true;
  batch.position = At(1, 0, 0, 0);
  ready_ = Pulled(std::move(batch));
  drops_ = true;
}

// Ends the stages: no stage is left.
void StagedLoader::EndStages() {
  if (begun_ && options_.last != LastBatch::kDrop) {
    at_end_ = true;
    return;
  }
  if (begun_ && !drops_ && origin_ == 0) {  // its steps are those of the epoch, and none is full
    const Batching batching{.samples = before_ + stage_samples(),
                            .batch = options_.batch,
                            .rank = options_.rank,
                            .world = options_.world,
                            .last = options_.last};
    return Fail(Annotate(batching.Check(), data_->uri()));
  }
  begun_.reset();
  stage_ = stages_.size();
  entry_ = {.before = 0, .start = At(1, 0, 0, 0)};
  ended_ = options_.epochs == 1;
  if (ended_) ready_ = Pulled(std::nullopt);
}

// Returns the rows of the last batch, which begun_ is.
uint64_t StagedLoader::RowsOfLast() const {
  if (options_.last != LastBatch::kShort) return options_.batch;
  return (InStep(before_ + stage_samples()) + options_.world - 1) / options_.world;
}

absl::StatusOr<std::unique_ptr<BatchSource>> StagedLoader::MakeRepeats(uint64_t rows) const {
  LoaderOptions options = options_.last == LastBatch::kShort ? StageOptions(options_, 0, 0) : options_;
  options.last = LastBatch::kWrap;
  options.epochs = 1;
  options.digest = DigestOf::kNone;
  options.log_damage = false;
  options.start.reset();
  options.batch = rows;
  if (options_.last == LastBatch::kShort) return Loader::Create(runtime_, *dataset_, options);
  const uint64_t samples = before_ + stage_samples();
  options.rank = (options_.rank + options_.world - samples % options_.world) % options_.world;
  StagedFacts facts{.shapes = shapes_, .asked = UINT64_MAX};
  for (ArrayShape& array : facts.shapes.front()) array.dims.front() = rows;
  return StagedLoader::Create(runtime_, again_->Again(), options, std::move(facts));
}

// Gives the last batch its rows that repeat samples. Returns false if they are not there yet.
bool StagedLoader::FillLast(Time deadline) {
  const uint64_t rows = RowsOfLast();
  if (rows > begun_->valid && options_.last != LastBatch::kPad) {
    const uint64_t missing = rows - begun_->valid;
    if (repeats_ == nullptr) {
      absl::StatusOr<std::unique_ptr<BatchSource>> made = MakeRepeats(missing);
      if (!made.ok()) {
        Fail(made.status());
        return true;
      }
      repeats_ = *std::move(made);
    }
    if (!repeats_->WaitReady(LeftUntil(deadline))) return false;
    absl::StatusOr<std::optional<Batch>> repeated = repeats_->Next();
    if (!repeated.ok()) {
      Fail(repeated.status());
      return true;
    }
    CopyRows(**std::move(repeated), missing, &*begun_, begun_->valid);
    const MutableByteSpan valid = begun_->Bytes("valid").subspan(begun_->valid, missing);
    if (options_.last == LastBatch::kShort) std::fill(valid.begin(), valid.end(), std::byte{0});
    repeats_.reset();
  }
  Shorten(&*begun_, rows);
  Batch batch = *std::move(begun_);
  begun_.reset();
  at_end_ = false;
  EndStages();
  EndEpoch(std::move(batch));
  return true;
}

// ---- The consumer

absl::StatusOr<std::optional<Batch>> StagedLoader::Next() {
  if (!ready_) {
    if (!failed_.ok()) return failed_;
    if (ended_) return std::nullopt;
    {
      const Lock lock(mutex_);
      ledger_.Begin(Clock::now());
    }
    while (!Advance(Clock::now() + std::chrono::hours(1))) {
    }
  }
  Pulled pulled = *std::move(ready_);
  ready_.reset();
  const Lock lock(mutex_);
  if (pulled.ok() && *pulled) report_.Add(**pulled);
  ledger_.End(Clock::now());
  return pulled;
}

bool StagedLoader::WaitReady(std::chrono::nanoseconds limit) {
  return ready_ || !failed_.ok() || ended_ || Advance(Clock::now() + limit);
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
