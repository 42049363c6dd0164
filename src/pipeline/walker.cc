#include "pipeline/walker.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/size.h"
#include "pipeline/sample_decoder.h"

namespace millrace {

namespace {

// The maximal units and steps that are asked for ahead, however small they are. Their bookkeeping must stay small
// beside the budget.
constexpr uint64_t kMaxUnitsAhead = 65536;
constexpr size_t kMaxStepsAhead = 4096;
// These are the maximal units of one round, so that fetched units get to the CPUs between rounds.
constexpr int kMaxUnitsOfARound = 1024;
// These are the bytes and units of one task, if units are so small that a task each would cost more than their
// decoding.
constexpr uint64_t kTaskBytes = uint64_t{64} << 10;
constexpr size_t kTaskUnits = 64;
// The bytes that each piece of a row counts for beside its tokens: it is looked up in the index.
constexpr uint64_t kPieceWork = 1024;

}  // namespace

Fetcher::Options FetchOptions(const LoaderPlan& plan, std::stop_token stop) {
  Fetcher::Options options{.memory_bytes = plan.fetch_bytes,
                           .group_bytes = plan.group_bytes,
                           .epoch_bytes = plan.epoch_bytes,
                           .turns_per_item = plan.options.world};
  options.stop = std::move(stop);
  for (const OrderPolicy& policy : plan.policies) options.extents.push_back(policy.extent);
  for (const Subset& part : plan.source.parts()) options.gaps.push_back(part.dataset->store().traits().gap_bytes);
  return options;
}

// Represents a row of the batch.
struct Walker::Unit {
  EpochOrder::Row row;
  uint32_t number = 0;  // of the row in its batch
  bool done = false;
  std::optional<uint64_t> value_bytes;  // that are counted for it
  std::shared_ptr<FetchedItem> fetched;
  std::unique_ptr<Replacement> replacement;
  absl::Status status;
};

struct Walker::Step {
  uint64_t number = 0;
  uint64_t epoch = 0;
  uint64_t consumed = 0;  // before it
  size_t shape = 0;
  uint64_t batch_rows = 0;        // of the batch
  uint64_t planned_rows = 0;      // of these hold a sample
  std::vector<Unit> units;        // the rows that were walked, in their order; padding has none. Tasks keep pointers
  bool walked = false;            // all of them are there
  std::vector<uint32_t> fetched;  // units to hand out
  size_t done = 0;                // units decoded, or failed
  size_t first_open = 0;          // all units before it are done
  std::shared_ptr<MutableByteSpan> slot;
  std::vector<BatchValues> values;
  uint64_t value_bytes = 0;  // that are counted for its units
  uint64_t odd_images = 0;   // in its units
  std::vector<std::string> keys;
  Uint128 digest;
  uint64_t tokens = 0;                                             // decoded, of rows that count
  std::vector<std::pair<uint32_t, QuarantinedSample>> quarantine;  // with the unit
  bool failed = false;                                             // a unit has
  int64_t undecoded = 0;                                           // units whose task has not run; of the owner's lock

  bool ready() const { return walked && slot != nullptr && done == units.size(); }
};

uint64_t Walker::Task::priority() const {
  return step->number;
}

bool Walker::Task::CompletesStep() const {
  return (step->undecoded -= static_cast<int64_t>(units.size())) <= 0;
}

void Walker::Task::Run(RowDecoder& decoder, const std::stop_token& stop) {
  rows.reserve(units.size());
  for (const Unit* unit : units) {
    if (stop.stop_requested()) {
      rows.emplace_back(absl::CancelledError());
      continue;
    }
    const BatchRow to{.epoch = step->epoch,
                      .position = unit->row.position,
                      .draw = unit->row.draw,
                      .counts = unit->row.counts,
                      .valid = unit->row.counts || plan.options.last != LastBatch::kShort,
                      .slot = step->slot->data(),
                      .layout = &plan.layouts[step->shape],
                      .row = unit->number,
                      .key = &step->keys[unit->number],
                      .values = step->values.data(),
                      .replacement = unit->replacement.get()};
    rows.push_back(decoder.Decode(to, *unit->fetched));
  }
}

Walker::Walker(const LoaderPlan& plan, int threads, BatchRing* ring, Fetcher::Send send, std::stop_token stop)
    : plan_(plan),
      shapes_(ShapesOf(plan)),
      threads_(threads),
      ring_(ring),
      send_(std::move(send)),
      fetcher_(plan.source, FetchOptions(plan, std::move(stop)), [this](auto request) { Send(std::move(request)); }) {
  if (plan.options.cache != nullptr) next_use_.emplace(plan);
  const Position start = plan.options.start.value_or(Position{});
  OpenEpoch(start.epoch, start.consumed);
}

Walker::~Walker() = default;

void Walker::Send(std::unique_ptr<Fetcher::Request> request) {
  const Fetcher::Cause& cause = request->cause;
  if (next_use_) request->plan = next_use_->Of(request->run, cause.epoch, cause.draw, cause.turn);
  send_(std::move(request));
}

// ---- The walk: what comes next

void Walker::OpenEpoch(uint64_t epoch, uint64_t consumed) {
  const uint64_t epochs = plan_.options.epochs;
  walk_done_ = epochs != 0 && epoch >= epochs;
  if (walk_done_) return;
  walk_order_.emplace(plan_, epoch);
  walk_epoch_ = epoch;
  walk_consumed_ = consumed;
  walk_unit_ = 0;
}

void Walker::OpenStep() {
  auto step = std::make_unique<Step>();
  step->number = opened_steps_++;
  step->epoch = walk_epoch_;
  step->consumed = walk_consumed_;
  const EpochOrder::Step planned = walk_order_->StepAt(walk_consumed_);
  step->shape = planned.shape;
  step->batch_rows = planned.batch;
  step->planned_rows = planned.rows;
  step->undecoded = static_cast<int64_t>(planned.rows);
  step->units.reserve(planned.rows);
  steps_.push_back(std::move(step));
}

void Walker::CloseStep(Step& step) {
  step.walked = true;
  walk_unit_ = 0;
  walk_consumed_ = plan_.After(walk_consumed_);
  if (plan_.StepsFrom(walk_consumed_) == 0) OpenEpoch(walk_epoch_ + 1, 0);
}

Walker::Unit* Walker::WalkToNextUnit() {
  while (!walk_done_) {
    if (steps_.empty() || steps_.back()->walked) {
      if (untaken_ + steps_.size() >= kMaxStepsAhead) return nullptr;
      OpenStep();
    }
    Step& step = *steps_.back();
    if (walk_unit_ < step.units.size()) return &step.units[walk_unit_];
    if (step.units.size() == step.planned_rows) {
      CloseStep(step);
    } else {
      Unit& unit = step.units.emplace_back();
      unit.number = static_cast<uint32_t>(step.units.size() - 1);
      unit.row = walk_order_->RowAt(walk_consumed_, unit.number);
    }
  }
  return nullptr;
}

// Reserves memory for values. Values are counted from the walk on, in the order of delivery, so that those of the next
// batch never wait for those of a later one. Returns false if there is no room before the consumer takes a batch.
absl::StatusOr<bool> Walker::ReserveValues(Step& step, Unit& unit) {
  if (plan_.value_bytes == 0 || unit.value_bytes) return true;
  ASSIGN_OR_RETURN(const uint64_t bytes, ValueBytesOf(plan_.fields, plan_.source, unit.row.draw.item, &scratch_));
  if (value_bytes_ + bytes > plan_.value_bytes) {
    if (value_bytes_ > step.value_bytes || untaken_ > 0 || steps_.size() > 1) return false;
    // No memory will be given back: this batch alone takes more.
    const uint64_t about = (step.value_bytes + bytes) / (walk_unit_ + 1) * step.planned_rows;
    return absl::ResourceExhaustedError(fmt::format(
        "the values of a batch (texts, arrays, bytes) take about {}, and {} of the memory budget of {} are for them; "
        "choose a smaller batch, or a budget of {}",
        FormatSize(about), FormatSize(plan_.value_bytes), FormatSize(plan_.options.memory_bytes),
        FormatSize(10 * std::max(about, plan_.value_bytes))));
  }
  Count(step, unit, bytes);
  return true;
}

void Walker::Count(Step& step, Unit& unit, uint64_t value_bytes) {
  const uint64_t before = unit.value_bytes.value_or(0);
  unit.value_bytes = value_bytes;
  step.value_bytes += value_bytes - before;
  value_bytes_ += value_bytes - before;
}

bool Walker::FetchNext() {
  if (walk_failed_ || units_ahead_ >= kMaxUnitsAhead) return false;
  Unit* unit = WalkToNextUnit();
  if (unit == nullptr) return false;
  Step& step = *steps_.back();
  const absl::StatusOr<bool> room = ReserveValues(step, *unit);
  if (!room.ok()) walk_failed_ = room.status();
  if (!room.ok() || !*room) return false;
  const Fetcher::Horizon horizon{.order = &*walk_order_,
                                 .epoch = walk_epoch_,
                                 .consumed = walk_consumed_,
                                 .turn = unit->row.turn,
                                 .alone = !unit->row.counts,  // wrapped repeats take nobody along
                                 .first_step = step.number == 0,
                                 .rows = step.planned_rows};
  absl::StatusOr<std::shared_ptr<FetchedItem>> item = fetcher_.Fetch(unit->row.draw, horizon, units_ahead_);
  if (!item.ok()) {
    walk_failed_ = item.status();
    return false;
  }
  if (*item == nullptr) return false;
  unit->fetched = *std::move(item);
  ++units_ahead_;
  ++walk_unit_;
  unit->fetched->waiting = UnitId{step.number, unit->number};
  if (unit->fetched->ready()) OnReady(*unit->fetched->waiting);
  return true;
}

// ---- Moving work forward

void Walker::OnFetched(std::unique_ptr<Fetcher::Request> request, const absl::Status& status) {
  for (const std::shared_ptr<FetchedItem>& item : fetcher_.Finish(std::move(request), status)) {
    if (item->waiting) OnReady(*item->waiting);
  }
}

void Walker::OnReady(const UnitId& id) {
  StepOf(id.step).fetched.push_back(id.unit);
}

Walker::Step& Walker::StepOf(uint64_t number) {
  return *steps_[number - steps_.front()->number];
}

// Fetches replacements. Returns false if there is no memory for the next one.
absl::StatusOr<bool> Walker::FetchReplacements() {
  while (!damaged_.empty()) {
    const UnitId id = *damaged_.begin();
    Unit& unit = StepOf(id.step).units[id.unit];
    const Fetcher::Cause cause{StepOf(id.step).epoch, unit.row.draw, unit.row.turn};
    ASSIGN_OR_RETURN(unit.fetched, fetcher_.FetchAlone(unit.replacement->item, cause));
    if (unit.fetched == nullptr) return false;
    unit.fetched->waiting = id;
    damaged_.erase(damaged_.begin());
  }
  return true;
}

void Walker::Dispatch(Step& step) {
  // All threads get a part of a step.
  const size_t share = step.planned_rows / (2 * static_cast<size_t>(threads_));
  const size_t most = std::clamp<size_t>(share, 1, kTaskUnits);
  uint64_t bytes = 0;
  std::unique_ptr<Task> task;
  const auto hand_out = [&] {
    bytes = 0;
    output_.tasks.push_back(std::move(task));
    ++tasks_;  // now: it will not run if that threw
  };
  for (const uint32_t index : step.fetched) {
    Unit& unit = step.units[index];
    if (task == nullptr) task = std::make_unique<Task>(plan_, &step);
    task->units.push_back(&unit);
    bytes += unit.fetched->span().size() + unit.fetched->pieces().size() * kPieceWork;
    if (task->units.size() >= most || bytes >= kTaskBytes) hand_out();
  }
  if (task != nullptr) hand_out();
  step.fetched.clear();
}

// Gives slots to steps. Decoding runs a few batches ahead: enough for all CPUs, while most slots are left to the
// program.
void Walker::GiveSlots(uint64_t untaken) {
  const uint64_t per_batch = std::max<uint64_t>(1, plan_.layouts.back().batch());
  uint64_t steps_ahead = 3 + 8 * static_cast<uint64_t>(threads_) / per_batch;
  steps_ahead -= std::min(steps_ahead, untaken);
  for (const std::unique_ptr<Step>& step : steps_) {
    if (steps_ahead-- == 0) break;
    if (step->slot == nullptr) {
      step->slot = ring_->TryAcquire();
      if (step->slot == nullptr) break;
      const uint64_t rows = plan_.layouts[step->shape].batch();
      step->keys.resize(rows);
      for (const PlannedField& field : plan_.fields) {
        if (!field.wanted.is_value()) continue;
        step->values.push_back({field.wanted.name, field.wanted.kind, std::vector<std::string>(rows)});
      }
    }
    Dispatch(*step);
  }
}

bool Walker::Advance(uint64_t untaken, const std::atomic<bool>& interrupted) {
  if (ended_) return false;
  untaken_ = untaken;
  bool more = true;
  absl::StatusOr<bool> replaced = FetchReplacements();
  if (!replaced.ok()) {
    Fail(replaced.status());
    return false;
  }
  for (int units = 0; *replaced && more && units < kMaxUnitsOfARound; ++units) {
    more = FetchNext();
    if (interrupted.load(std::memory_order_relaxed)) break;
  }
  GiveSlots(untaken);
  PutTogether();
  output_.wait = WaitOfFront();
  return more && *replaced && !ended_;
}

void Walker::Fail(absl::Status status) {
  if (ended_) return;
  ended_ = true;
  output_.end = std::move(status);
}

void Walker::OnDecoded(std::unique_ptr<Task> task) {
  --tasks_;
  for (size_t i = 0; i < task->units.size(); ++i) Finish(*task->step, *task->units[i], std::move(task->rows[i]));
}

void Walker::Finish(Step& step, Unit& unit, absl::StatusOr<DecodedRow> decoded) {
  unit.fetched = nullptr;  // its memory is free for what comes next
  if (decoded.ok() && !decoded->damage.ok()) {
    if (unit.replacement == nullptr) {
      unit.replacement = std::make_unique<Replacement>();
      unit.replacement->damage = std::move(decoded->damage);
    } else {
      ++unit.replacement->attempt;
    }
    Replacement& next = *unit.replacement;
    next.item = ReplacementOf(plan_, step.epoch, unit.row.draw.item, next.attempt);
    // This may be a little more than there is room for: its bytes are in memory that is kept for such samples.
    if (unit.value_bytes) {
      const absl::StatusOr<uint64_t> bytes = ValueBytesOf(plan_.fields, plan_.source, next.item, &scratch_);
      if (bytes.ok()) Count(step, unit, *bytes);
    }
    damaged_.insert({step.number, unit.number});
    return;
  }
  unit.status = decoded.status();
  if (decoded.ok()) {
    step.digest += decoded->digest;
    if (unit.row.counts) step.tokens += decoded->tokens;
    if (unit.row.counts) step.odd_images += decoded->odd_images;
    for (QuarantinedSample& sample : decoded->quarantined) {
      step.quarantine.emplace_back(unit.number, std::move(sample));
    }
  } else {
    step.failed = true;
  }
  unit.done = true;
  ++step.done;
  --units_ahead_;
}

// ---- Batches

void Walker::PutTogether() {
  while (!ended_ && !steps_.empty() && steps_.front()->ready()) {
    Step& step = *steps_.front();
    if (step.failed) {
      const auto failed =
          std::find_if(step.units.begin(), step.units.end(), [](const Unit& unit) { return !unit.status.ok(); });
      return Fail(failed->status);
    }
    Batch batch = Deliver(step);
    if (const absl::Status declared = CheckShape(shapes_, batch); !declared.ok()) return Fail(declared);
    output_.batches.push_back(std::move(batch));
    ++untaken_;
    steps_.pop_front();
  }
  if (walk_failed_ && (steps_.empty() || !steps_.front()->walked)) Fail(*walk_failed_);
  if (walk_done_ && steps_.empty()) Fail(absl::OkStatus());
}

Batch Walker::Deliver(Step& step) const {
  const BatchLayout& layout = plan_.layouts[step.shape];
  Batch batch;
  batch.shape = step.shape;
  batch.size = layout.batch();
  batch.length = layout.length();
  batch.arrays = layout.Deliver(step.slot->data(), step.units.size());
  batch.values = std::move(step.values);
  batch.value_bytes = step.value_bytes;
  batch.keys = std::move(step.keys);
  batch.slot = *step.slot;
  batch.memory = std::move(step.slot);
  batch.valid = static_cast<uint64_t>(
      std::count_if(step.units.begin(), step.units.end(), [](const Unit& unit) { return unit.row.counts; }));
  batch.epoch = step.epoch;
  const uint64_t after = plan_.After(step.consumed);
  batch.last_of_epoch = plan_.StepsFrom(after) == 0;
  batch.position = batch.last_of_epoch ? Position{step.epoch + 1, 0, plan_.fingerprint}
                                       : Position{step.epoch, after, plan_.fingerprint};
  batch.digest = step.digest;
  batch.token_count = step.tokens;
  batch.odd_images = step.odd_images;
  std::stable_sort(step.quarantine.begin(), step.quarantine.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [unit, sample] : step.quarantine) batch.quarantined.push_back(std::move(sample));
  Shorten(&batch, step.batch_rows);
  return batch;
}

Walker::Wait Walker::WaitOfFront() {
  const Wait not_asked{.cause = fetcher_.at_request_limit() ? StallCause::kQueue : StallCause::kBudget};
  if (steps_.empty()) return not_asked;
  Step& step = *steps_.front();
  while (step.first_open < step.units.size() && step.units[step.first_open].done) ++step.first_open;
  if (step.first_open == step.units.size()) return step.walked ? Wait{.cause = StallCause::kConsumer} : not_asked;
  const Unit& unit = step.units[step.first_open];
  if (unit.fetched == nullptr) return not_asked;
  if (!unit.fetched->ready()) return {.cause = CauseOf(unit.fetched->phase()), .request = unit.fetched->request()};
  return {.cause = step.slot == nullptr ? StallCause::kConsumer : StallCause::kDecode};
}

}  // namespace millrace
