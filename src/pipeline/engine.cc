#include "pipeline/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/size.h"
#include "pipeline/batch_shape.h"

namespace millrace {

namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kMaxQuarantineEntries = 1000;
// Units and steps beyond this many are not asked for, however small they are: their bookkeeping must stay small beside
// the budget.
constexpr uint64_t kMaxUnitsAhead = 65536;
constexpr size_t kMaxStepsAhead = 4096;
// Between two slices of the walk, for those who wait for the mutex: else its thread would take it again before they are
// awake.
constexpr std::chrono::microseconds kPause{20};
// What the walker may do for later batches while the first one is not there: enough for as many requests as may be
// in flight, unless samples are so small that their bookkeeping is the work.
constexpr std::chrono::milliseconds kHeadStart{20};
// Decoding by one task, where units are so small that a task each would cost more than their decoding.
constexpr uint64_t kTaskBytes = uint64_t{64} << 10;
constexpr size_t kTaskUnits = 64;
// As which each piece of a row counts beside its tokens: it is looked up in the index.
constexpr uint64_t kPieceWork = 1024;
// How often a waiting consumer looks at what it waits for: finer than any cause that matters, and cheap.
constexpr std::chrono::milliseconds kLedgerTick{2};

}  // namespace

Fetcher::Options FetchOptions(const LoaderPlan& plan) {
  Fetcher::Options options{
      .memory_bytes = plan.fetch_bytes, .group_bytes = plan.group_bytes, .turns_per_item = plan.options.world};
  for (const OrderPolicy& policy : plan.policies) options.extents.push_back(policy.extent);
  for (const Subset& part : plan.source.parts()) options.gaps.push_back(part.dataset->store().BytesWorthARequest());
  return options;
}

// What one task decodes: a row of the batch.
struct Loader::Engine::Unit {
  EpochOrder::Row row;
  uint32_t number = 0;  // of the row in its batch
  bool done = false;
  std::shared_ptr<FetchedItem> fetched;
  absl::Status status;
};

struct Loader::Engine::Step {
  uint64_t epoch = 0;
  uint64_t consumed = 0;  // before it
  size_t shape = 0;
  uint64_t planned_rows = 0;
  std::deque<Unit> units;         // the rows that were walked, in their order; padding has none. Tasks keep pointers
  bool walked = false;            // all of them are there
  std::vector<uint32_t> fetched;  // units to hand to the CPU pool
  size_t done = 0;                // units decoded, or failed
  std::shared_ptr<Buffer> slot;
  std::vector<std::string> texts;
  std::vector<std::string> keys;
  Uint128 digest;
  uint64_t tokens = 0;                                             // decoded, of rows that count
  std::vector<std::pair<uint32_t, QuarantinedSample>> quarantine;  // with the unit

  bool ready() const { return walked && slot != nullptr && done == units.size(); }
};

Loader::Engine::Engine(Runtime& runtime, LoaderPlan plan, Reservation fetch_memory, Reservation slot_memory)
    : runtime_(runtime), plan_(std::move(plan)), shapes_(ShapesOf(plan_)), fetch_memory_(std::move(fetch_memory)) {
  fetcher_ = std::make_unique<Fetcher>(plan_.source, FetchOptions(plan_), &mutex_, [this](const Fetcher::Items& items) {
    for (const std::shared_ptr<FetchedItem>& item : items) {
      if (item->waiting) OnFetched(*item->waiting);
    }
    Advance();
  });
  ring_ = std::make_unique<BatchRing>(plan_.slot_bytes, plan_.slots, std::move(slot_memory), [this] {
    std::lock_guard lock(mutex_);
    AdvanceSoon();
  });
  received_of_parts_.resize(plan_.source.parts().size());
  received_ = plan_.options.start.value_or(Position{0, 0, plan_.fingerprint});
  std::lock_guard lock(mutex_);
  OpenEpoch(received_.epoch, received_.consumed);
  Advance();
}

Loader::Engine::~Engine() {
  stop_.request_stop();
  std::unique_lock lock(mutex_);
  stopping_ = true;
  fetcher_->Stop();
  changed_.wait(lock, [this] { return tasks_ == 0 && fetcher_->idle(); });
  std::deque<std::unique_ptr<Step>> steps = std::move(steps_);
  lock.unlock();
  steps.clear();  // slots return to the ring, which takes the lock
  ring_.reset();
}

// ---- The walker: what comes next

void Loader::Engine::OpenEpoch(uint64_t epoch, uint64_t consumed) {
  const uint64_t epochs = plan_.options.epochs;
  walk_done_ = epochs != 0 && epoch >= epochs;
  if (walk_done_) return;
  walk_order_.emplace(plan_, epoch);
  walk_epoch_ = epoch;
  walk_consumed_ = consumed;
  walk_unit_ = 0;
}

void Loader::Engine::OpenStep() {
  auto step = std::make_unique<Step>();
  step->epoch = walk_epoch_;
  step->consumed = walk_consumed_;
  const EpochOrder::Step planned = walk_order_->StepAt(walk_consumed_);
  step->shape = planned.shape;
  step->planned_rows = planned.rows;
  steps_.push_back(std::move(step));
}

void Loader::Engine::CloseStep(Step& step) {
  step.walked = true;
  walk_unit_ = 0;
  walk_consumed_ = plan_.After(walk_consumed_);
  if (plan_.StepsFrom(walk_consumed_) == 0) OpenEpoch(walk_epoch_ + 1, 0);
}

Loader::Engine::Unit* Loader::Engine::WalkToNextUnit() {
  while (!walk_done_) {
    if (steps_.empty() || steps_.back()->walked) {
      if (steps_.size() >= kMaxStepsAhead) return nullptr;
      OpenStep();
    }
    Step& step = *steps_.back();
    if (walk_unit_ < step.units.size()) return &step.units[walk_unit_];
    if (step.units.size() == step.planned_rows) {
      CloseStep(step);
    } else {
      Unit unit;
      unit.number = static_cast<uint32_t>(step.units.size());
      unit.row = walk_order_->RowAt(walk_consumed_, unit.number);
      step.units.push_back(std::move(unit));
    }
  }
  return nullptr;
}

// ---- Moving work forward

void Loader::Engine::Fail(absl::Status status) {
  failure_ = std::move(status);
  walk_done_ = true;
}

bool Loader::Engine::FetchNext() {
  if (units_ahead_ >= kMaxUnitsAhead) return false;
  Unit* unit = WalkToNextUnit();
  if (unit == nullptr) return false;
  Fetcher::Horizon horizon;
  horizon.order = &*walk_order_;
  horizon.epoch = walk_epoch_;
  horizon.consumed = walk_consumed_;
  horizon.turn = unit->row.turn;
  horizon.alone = !unit->row.counts;  // wrapped repeats take nobody along
  horizon.first_step = taken_steps_ + steps_.size() == 1;
  horizon.rows = steps_.back()->planned_rows;
  absl::StatusOr<std::shared_ptr<FetchedItem>> item = fetcher_->Fetch(unit->row.draw, horizon, units_ahead_);
  if (!item.ok()) {
    Fail(item.status());
    return false;
  }
  if (*item == nullptr) return false;
  unit->fetched = *std::move(item);
  const UnitId id{taken_steps_ + steps_.size() - 1, static_cast<uint32_t>(walk_unit_)};
  ++units_ahead_;
  ++walk_unit_;
  if (unit->fetched->ready()) {
    OnFetched(id);
  } else {
    unit->fetched->waiting = id;
  }
  return true;
}

void Loader::Engine::OnFetched(const UnitId& id) {
  steps_[id.step - taken_steps_]->fetched.push_back(id.unit);
}

void Loader::Engine::Dispatch(Step& step) {
  // All threads get something of a step.
  const size_t share = step.planned_rows / (2 * static_cast<size_t>(runtime_.cpu().threads()));
  const size_t most = std::clamp<size_t>(share, 1, kTaskUnits);
  std::vector<Unit*> units;
  uint64_t bytes = 0;
  const auto submit = [&] {
    if (units.empty()) return;
    ++tasks_;
    runtime_.cpu().Submit([this, step = &step, units = std::move(units)] { RunUnits(step, units); });
    units.clear();
    bytes = 0;
  };
  for (const uint32_t index : step.fetched) {
    Unit& unit = step.units[index];
    units.push_back(&unit);
    bytes += unit.fetched->span().size() + unit.fetched->pieces().size() * kPieceWork;
    if (units.size() >= most || bytes >= kTaskBytes) submit();
  }
  submit();
  step.fetched.clear();
}

// For threads with better things to do, that of the consumer above all.
void Loader::Engine::AdvanceSoon(std::chrono::microseconds pause) {
  if (advancing_soon_ || stopping_) return;
  advancing_soon_ = true;
  ++tasks_;
  runtime_.cpu().Submit([this, pause] {
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    std::lock_guard lock(mutex_);
    advancing_soon_ = false;
    --tasks_;
    Advance(kSlice);
  });
}

// All of it is asked for, and what comes of that would have to wait for the mutex.
bool Loader::Engine::FirstBatchComesFirst() const {
  if (taken_steps_ > 0 || steps_.size() < 2 || head_start_ < kHeadStart) return false;
  return steps_.front()->done < steps_.front()->units.size();
}

void Loader::Engine::WalkAhead(std::chrono::microseconds slice) {
  SteadyClock::time_point before = SteadyClock::now();
  const SteadyClock::time_point end = before + slice;
  while (failure_.ok() && !FirstBatchComesFirst() && FetchNext()) {
    const SteadyClock::time_point now = SteadyClock::now();
    if (steps_.size() > 1) head_start_ += now - before;
    before = now;
    if (now < end) continue;
    AdvanceSoon(kPause);
    break;
  }
}

void Loader::Engine::Advance(std::chrono::microseconds slice) {
  if (stopping_) {
    changed_.notify_all();
    return;
  }
  WalkAhead(slice);
  // Decoding runs a few batches ahead: enough for all CPUs, while most slots are left to the program.
  const uint64_t per_batch = std::max<uint64_t>(1, plan_.layouts.back().batch);
  uint64_t steps_ahead = 3 + 8 * static_cast<uint64_t>(runtime_.cpu().threads()) / per_batch;
  for (const std::unique_ptr<Step>& step : steps_) {
    if (steps_ahead-- == 0) break;
    if (step->slot == nullptr) {
      step->slot = ring_->TryAcquire();
      if (step->slot == nullptr) break;
      const SlotLayout& layout = plan_.layouts[step->shape];
      std::memset(step->slot->data() + layout.mask, 0, layout.batch);
      step->keys.resize(layout.batch);
      if (plan_.text_labels) step->texts.resize(layout.batch);
    }
    Dispatch(*step);
  }
  if (FrontIsReady()) changed_.notify_all();
}

// ---- Decoding

std::unique_ptr<Loader::Engine::Decoders> Loader::Engine::BorrowDecoders() {
  std::lock_guard lock(mutex_);
  if (idle_decoders_.empty()) return std::make_unique<Decoders>(plan_, stop_.get_token());
  std::unique_ptr<Decoders> decoders = std::move(idle_decoders_.back());
  idle_decoders_.pop_back();
  return decoders;
}

absl::StatusOr<DecodedRow> Loader::Engine::Decode(Decoders& decoders, Step& step, const Unit& unit) {
  if (stop_.stop_requested()) return absl::CancelledError();
  const FetchedItem& fetched = *unit.fetched;
  const EpochOrder::Row& row = unit.row;
  if (plan_.source.tokens() != nullptr) {
    return decoders.tokens.Decode({.epoch = step.epoch,
                                   .position = row.position,
                                   .item = row.draw.item,
                                   .counts = row.counts,
                                   .slot = step.slot->data(),
                                   .layout = &plan_.layouts[step.shape],
                                   .row = unit.number,
                                   .key = &step.keys[unit.number]},
                                  fetched);
  }
  const absl::StatusOr<ByteSpan> bytes =
      fetched.status().ok() ? absl::StatusOr<ByteSpan>(fetched.span()) : fetched.status();
  return decoders.samples.Decode({.epoch = step.epoch,
                                  .position = row.position,
                                  .draw = row.draw,
                                  .counts = row.counts,
                                  .slot = step.slot->data(),
                                  .row = unit.number,
                                  .key = &step.keys[unit.number],
                                  .text = plan_.text_labels ? &step.texts[unit.number] : nullptr},
                                 bytes);
}

void Loader::Engine::RunUnits(Step* step, const std::vector<Unit*>& units) {
  std::unique_ptr<Decoders> decoders = BorrowDecoders();
  std::vector<absl::StatusOr<DecodedRow>> decoded;
  decoded.reserve(units.size());
  for (const Unit* unit : units) decoded.push_back(Decode(*decoders, *step, *unit));
  std::lock_guard lock(mutex_);
  idle_decoders_.push_back(std::move(decoders));
  for (size_t i = 0; i < units.size(); ++i) FinishUnit(*step, *units[i], std::move(decoded[i]));
  --tasks_;
  Advance();
}

void Loader::Engine::FinishUnit(Step& step, Unit& unit, absl::StatusOr<DecodedRow> decoded) {
  unit.status = decoded.status();
  if (decoded.ok()) {
    step.digest += decoded->digest;
    if (unit.row.counts) step.tokens += decoded->tokens;
    for (QuarantinedSample& sample : decoded->quarantined) {
      step.quarantine.emplace_back(unit.number, std::move(sample));
    }
  }
  unit.fetched = nullptr;  // its memory is free for what comes next
  unit.done = true;
  ++step.done;
  --units_ahead_;
}

// ---- The consumer

bool Loader::Engine::ConsumerHoldsAll() const {
  // Slots go to steps in order, so when the first has none, the engine holds none.
  return !steps_.empty() && steps_.front()->slot == nullptr && ring_->exhausted();
}

bool Loader::Engine::FrontIsReady() const {
  if (steps_.empty()) return walk_done_;
  if (!failure_.ok() && !steps_.front()->walked) return true;
  return steps_.front()->ready() || ConsumerHoldsAll();
}

StallCause Loader::Engine::FrontCause() const {
  const auto not_asked = fetcher_->at_request_limit() ? StallCause::kQueue : StallCause::kBudget;
  if (steps_.empty()) return not_asked;
  const Step& step = *steps_.front();
  for (const Unit& unit : step.units) {
    if (unit.done) continue;
    if (unit.fetched == nullptr) return not_asked;
    if (!unit.fetched->ready()) return CauseOf(unit.fetched->phase());
    return step.slot == nullptr ? StallCause::kConsumer : StallCause::kDecode;
  }
  return step.walked ? StallCause::kConsumer : not_asked;
}

bool Loader::Engine::WaitReady(std::chrono::nanoseconds limit) {
  std::unique_lock lock(mutex_);
  const SteadyClock::time_point begin = SteadyClock::now();
  if (!waiting_) ledger_.Begin(begin);
  waiting_ = true;
  while (!FrontIsReady()) {
    const SteadyClock::time_point before = SteadyClock::now();
    const std::chrono::nanoseconds left = limit - (before - begin);
    if (left <= std::chrono::nanoseconds::zero()) return false;
    const StallCause cause = FrontCause();
    changed_.wait_for(lock, std::min<std::chrono::nanoseconds>(left, kLedgerTick));
    ledger_.Charge(cause, SteadyClock::now());
  }
  return true;
}

// The arrays of a step's slot, with the padding of rows that hold nothing.
Batch Loader::Engine::ViewOf(Step& step) const {
  const SlotLayout& layout = plan_.layouts[step.shape];
  const uint64_t rows = step.units.size();
  std::byte* const data = step.slot->data();
  const auto numbers = [&](uint64_t offset, auto padding) {
    auto* const first = reinterpret_cast<decltype(padding)*>(data + offset);
    std::fill(first + rows, first + layout.batch, padding);
    return std::span(first, layout.batch);
  };
  Batch batch;
  batch.shape = step.shape;
  batch.size = layout.batch;
  batch.length = layout.length;
  batch.images = {data + layout.images, layout.batch * layout.image_bytes};
  std::memset(batch.images.data() + rows * layout.image_bytes, 0, (layout.batch - rows) * layout.image_bytes);
  const uint64_t places = layout.batch * layout.length;
  if (layout.length > 0) {
    PadRows(plan_, layout, data, rows);
    batch.tokens = {data + layout.tokens, places * layout.token_bytes};
    batch.token_mask = {reinterpret_cast<uint8_t*>(data + layout.token_mask), places};
    batch.rows = numbers(layout.rows, uint64_t{0});
  }
  if (layout.with_segments) {
    batch.position_ids = {reinterpret_cast<int32_t*>(data + layout.position_ids), places};
    batch.segment_ids = {reinterpret_cast<int32_t*>(data + layout.segment_ids), places};
  }
  batch.mask = {reinterpret_cast<uint8_t*>(data + layout.mask), layout.batch};
  batch.samples = numbers(layout.samples, uint64_t{0});
  if (plan_.with_parts()) batch.parts = numbers(layout.parts, uint64_t{0});
  if (plan_.label && !plan_.text_labels) batch.labels = numbers(layout.labels, int64_t{-1});
  return batch;
}

Batch Loader::Engine::TakeFront() {
  const std::unique_ptr<Step> step = std::move(steps_.front());
  steps_.pop_front();
  ++taken_steps_;
  Batch batch = ViewOf(*step);
  batch.texts = std::move(step->texts);
  batch.keys = std::move(step->keys);
  batch.memory = std::move(step->slot);
  for (const Unit& unit : step->units) {
    if (!unit.row.counts) continue;
    ++batch.valid;
    ++received_of_parts_[plan_.source.Find(unit.row.draw.item).part];
  }
  received_tokens_ += step->tokens;
  received_places_ += batch.size * batch.length;
  batch.epoch = step->epoch;
  const uint64_t after = plan_.After(step->consumed);
  batch.last_of_epoch = plan_.StepsFrom(after) == 0;
  batch.position = batch.last_of_epoch ? Position{step->epoch + 1, 0, plan_.fingerprint}
                                       : Position{step->epoch, after, plan_.fingerprint};
  received_ = batch.position;
  received_samples_ += batch.valid;
  received_digest_ += step->digest;
  std::stable_sort(step->quarantine.begin(), step->quarantine.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  quarantined_ += step->quarantine.size();
  for (auto& [unit, sample] : step->quarantine) {
    if (quarantine_.size() < kMaxQuarantineEntries) quarantine_.push_back(std::move(sample));
  }
  return batch;
}

absl::StatusOr<std::optional<Batch>> Loader::Engine::Next() {
  WaitReady(std::chrono::hours(24 * 365));
  std::lock_guard lock(mutex_);
  ledger_.End(SteadyClock::now());
  waiting_ = false;
  if (steps_.empty()) {
    if (!failure_.ok()) return failure_;
    return std::optional<Batch>();
  }
  const Step& front = *steps_.front();
  if (!front.ready()) {
    if (!failure_.ok()) return failure_;
    return absl::ResourceExhaustedError(
        fmt::format("the program holds all {} batches that fit into the memory budget of {}; let go of some (copy what "
                    "you keep, or "
                    "keep only what you need of each), or raise the budget",
                    plan_.slots, FormatSize(plan_.options.memory_bytes)));
  }
  for (const Unit& unit : front.units) {
    if (!unit.status.ok()) {
      failure_ = unit.status;
      return failure_;
    }
  }
  Batch batch = TakeFront();
  if (failure_ = CheckShape(shapes_, batch); !failure_.ok()) return failure_;
  AdvanceSoon();
  return batch;
}

LoaderReport Loader::Engine::report() const {
  std::lock_guard lock(mutex_);
  LoaderReport report;
  report.samples = received_samples_;
  report.tokens = received_tokens_;
  report.token_places = received_places_;
  report.digest = received_digest_;
  report.position = received_;
  report.part_samples = received_of_parts_;
  report.stalls = ledger_.report();
  report.quarantine = quarantine_;
  report.quarantined = quarantined_;
  return report;
}

}  // namespace millrace
