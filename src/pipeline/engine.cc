#include "pipeline/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/size.h"

namespace millrace {

namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kMaxQuarantineEntries = 1000;
// Rows and steps beyond this many are not asked for, however small they are: their bookkeeping must stay small beside
// the budget.
constexpr uint64_t kMaxRowsAhead = 65536;
constexpr size_t kMaxStepsAhead = 4096;
// How often a waiting consumer looks at what it waits for: finer than any cause that matters, and cheap.
constexpr std::chrono::milliseconds kLedgerTick{2};

}  // namespace

Fetcher::Options FetchOptions(const LoaderPlan& plan) {
  std::vector<uint64_t> extents;
  for (const OrderPolicy& policy : plan.policies) extents.push_back(policy.extent);
  return {.memory_bytes = plan.fetch_bytes,
          .extents = std::move(extents),
          .world = plan.batching.world,
          .rank = plan.batching.rank};
}

struct Loader::Engine::Row {
  uint64_t position = 0;
  Draw draw;
  bool counts = true;  // false: a wrapped repeat
  bool done = false;
  std::shared_ptr<Piece> piece;
  absl::Status status;
};

struct Loader::Engine::Step {
  uint64_t epoch = 0;
  uint64_t consumed = 0;          // before it
  std::vector<Row> rows;          // padding has none; reserved at once, so that tasks may keep pointers
  bool walked = false;            // all rows are there
  std::vector<uint32_t> fetched;  // rows to hand to the CPU pool
  size_t done = 0;                // rows decoded, or failed
  std::shared_ptr<Buffer> slot;
  std::vector<std::string> texts;
  std::vector<std::string> keys;
  Uint128 digest;
  std::vector<std::pair<const Row*, QuarantinedSample>> quarantine;

  bool ready() const { return walked && slot != nullptr && done == rows.size(); }
};

Loader::Engine::Engine(Runtime& runtime, LoaderPlan plan, Reservation fetch_memory, Reservation slot_memory)
    : runtime_(runtime), plan_(std::move(plan)), fetch_memory_(std::move(fetch_memory)) {
  fetcher_ =
      std::make_unique<Fetcher>(plan_.source, FetchOptions(plan_), &mutex_, [this](const Fetcher::Pieces& pieces) {
        for (const std::shared_ptr<Piece>& piece : pieces) OnFetched(*piece);
        Advance();
      });
  ring_ = std::make_unique<BatchRing>(plan_.layout.bytes, plan_.slots, std::move(slot_memory), [this] {
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

// ---- The walker: which sample comes next

void Loader::Engine::OpenEpoch(uint64_t epoch, uint64_t consumed) {
  const uint64_t epochs = plan_.options.epochs;
  walk_done_ = epochs != 0 && epoch >= epochs;
  if (walk_done_) return;
  walk_cursor_.reset();  // before the plan that it reads
  walk_plan_.emplace(plan_.PlanOf(epoch));
  walk_epoch_ = epoch;
  walk_consumed_ = consumed;
  walk_row_ = 0;
}

void Loader::Engine::OpenStep() {
  auto step = std::make_unique<Step>();
  step->epoch = walk_epoch_;
  step->consumed = walk_consumed_;
  const bool wraps = plan_.batching.last == LastBatch::kWrap;
  step->rows.reserve(wraps ? plan_.batching.batch : plan_.batching.Taken(walk_consumed_));
  steps_.push_back(std::move(step));
}

void Loader::Engine::CloseStep(Step& step) {
  step.walked = true;
  walk_row_ = 0;
  walk_consumed_ = plan_.batching.After(walk_consumed_);
  if (plan_.batching.StepsFrom(walk_consumed_) == 0) OpenEpoch(walk_epoch_ + 1, 0);
}

Loader::Engine::Row* Loader::Engine::AppendRow(Step& step) {
  const Batching::Slot slot = plan_.batching.At(walk_consumed_, walk_row_);
  Row row;
  row.position = slot.position;
  row.counts = !slot.padding;
  if (slot.padding) {
    row.draw = walk_plan_->DrawAt(slot.position);
  } else {
    if (walk_cursor_ == nullptr) {
      walk_cursor_ = std::make_unique<Plan::Cursor>(*walk_plan_, slot.position, plan_.batching.world);
    }
    row.draw = walk_cursor_->NextDraw();
  }
  step.rows.push_back(std::move(row));
  return &step.rows.back();
}

Loader::Engine::Row* Loader::Engine::WalkToNextRow() {
  while (!walk_done_) {
    if (steps_.empty() || steps_.back()->walked) {
      if (steps_.size() >= kMaxStepsAhead) return nullptr;
      OpenStep();
    }
    Step& step = *steps_.back();
    if (walk_row_ < step.rows.size()) return &step.rows[walk_row_];  // refused before; still the next one
    const bool wraps = plan_.batching.last == LastBatch::kWrap;
    if (walk_row_ < (wraps ? plan_.batching.batch : plan_.batching.Taken(walk_consumed_))) return AppendRow(step);
    CloseStep(step);
  }
  return nullptr;
}

// ---- Moving work forward

bool Loader::Engine::FetchNext() {
  if (rows_ahead_ >= kMaxRowsAhead) return false;
  Row* row = WalkToNextRow();
  if (row == nullptr) return false;
  Fetcher::Horizon horizon;
  horizon.plan = &*walk_plan_;
  horizon.epoch = walk_epoch_;
  horizon.position = row->position;
  horizon.end = row->counts ? plan_.batching.End(walk_consumed_) : 0;  // wrapped repeats take nobody along
  absl::StatusOr<std::shared_ptr<Piece>> piece = fetcher_->Fetch(row->draw, horizon, rows_ahead_);
  if (!piece.ok()) {
    failure_ = piece.status();
    walk_done_ = true;
    return false;
  }
  if (*piece == nullptr) return false;
  row->piece = *std::move(piece);
  row->piece->row = RowId{taken_steps_ + steps_.size() - 1, static_cast<uint32_t>(walk_row_)};
  ++rows_ahead_;
  ++walk_row_;
  if (row->piece->ready) OnFetched(*row->piece);
  return true;
}

void Loader::Engine::OnFetched(const Piece& piece) {
  if (piece.row) steps_[piece.row->step - taken_steps_]->fetched.push_back(piece.row->row);
}

void Loader::Engine::Dispatch(Step& step) {
  for (const uint32_t index : step.fetched) {
    ++tasks_;
    runtime_.cpu().Submit([this, step = &step, row = &step.rows[index]] { RunRow(step, row); });
  }
  step.fetched.clear();
}

// For threads with better things to do, that of the consumer above all.
void Loader::Engine::AdvanceSoon() {
  if (advancing_soon_ || stopping_) return;
  advancing_soon_ = true;
  ++tasks_;
  runtime_.cpu().Submit([this] {
    std::lock_guard lock(mutex_);
    advancing_soon_ = false;
    --tasks_;
    Advance();
  });
}

void Loader::Engine::Advance() {
  if (stopping_) {
    changed_.notify_all();
    return;
  }
  while (failure_.ok() && FetchNext()) {
  }
  // Decoding runs a few batches ahead: enough for all CPUs, while most slots are left to the program.
  const uint64_t per_batch = std::max<uint64_t>(1, plan_.batching.batch);
  uint64_t steps_ahead = 3 + 8 * static_cast<uint64_t>(runtime_.cpu().threads()) / per_batch;
  for (const std::unique_ptr<Step>& step : steps_) {
    if (steps_ahead-- == 0) break;
    if (step->slot == nullptr) {
      step->slot = ring_->TryAcquire();
      if (step->slot == nullptr) break;
      std::memset(step->slot->data() + plan_.layout.mask, 0, plan_.layout.batch);
      step->keys.resize(plan_.layout.batch);
      if (plan_.text_labels) step->texts.resize(plan_.layout.batch);
    }
    Dispatch(*step);
  }
  if (FrontIsReady()) changed_.notify_all();
}

// ---- Decoding

std::unique_ptr<SampleDecoder> Loader::Engine::BorrowDecoder() {
  std::lock_guard lock(mutex_);
  if (idle_decoders_.empty()) return std::make_unique<SampleDecoder>(plan_, stop_.get_token());
  std::unique_ptr<SampleDecoder> decoder = std::move(idle_decoders_.back());
  idle_decoders_.pop_back();
  return decoder;
}

void Loader::Engine::RunRow(Step* step, Row* row) {
  std::unique_ptr<SampleDecoder> decoder = BorrowDecoder();
  const auto index = static_cast<size_t>(row - step->rows.data());
  const BatchRow to{.epoch = step->epoch,
                    .position = row->position,
                    .draw = row->draw,
                    .counts = row->counts,
                    .slot = step->slot->data(),
                    .row = index,
                    .key = &step->keys[index],
                    .text = plan_.text_labels ? &step->texts[index] : nullptr};
  absl::StatusOr<DecodedRow> decoded = absl::CancelledError();
  if (!stop_.stop_requested()) {
    Piece& piece = *row->piece;
    decoded = decoder->Decode(to, piece.status.ok() ? absl::StatusOr<ByteSpan>(piece.span()) : piece.status);
  }
  std::lock_guard lock(mutex_);
  idle_decoders_.push_back(std::move(decoder));
  row->status = decoded.status();
  if (decoded.ok()) {
    step->digest += decoded->digest;
    if (decoded->quarantined) step->quarantine.emplace_back(row, *std::move(decoded->quarantined));
  }
  row->piece = nullptr;  // its memory is free for what comes next
  row->done = true;
  ++step->done;
  --rows_ahead_;
  --tasks_;
  Advance();
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
  for (const Row& row : step.rows) {
    if (row.done) continue;
    if (row.piece == nullptr) return not_asked;
    if (!row.piece->ready) return CauseOf(row.piece->phase());
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

Batch Loader::Engine::TakeFront() {
  const std::unique_ptr<Step> step = std::move(steps_.front());
  steps_.pop_front();
  ++taken_steps_;
  const SlotLayout& layout = plan_.layout;
  std::byte* data = step->slot->data();
  Batch batch;
  batch.images = {data, layout.batch * layout.image_bytes};
  auto* labels = reinterpret_cast<int64_t*>(data + layout.labels);
  auto* mask = reinterpret_cast<uint8_t*>(data + layout.mask);
  auto* samples = reinterpret_cast<uint64_t*>(data + layout.samples);
  const size_t rows = step->rows.size();
  std::memset(data + rows * layout.image_bytes, 0, (layout.batch - rows) * layout.image_bytes);
  std::fill(labels + rows, labels + layout.batch, int64_t{-1});
  std::fill(samples + rows, samples + layout.batch, uint64_t{0});
  batch.mask = {mask, layout.batch};
  batch.samples = {samples, layout.batch};
  if (plan_.mix) {
    auto* parts = reinterpret_cast<uint64_t*>(data + layout.parts);
    std::fill(parts + rows, parts + layout.batch, uint64_t{0});
    batch.parts = {parts, layout.batch};
  }
  if (plan_.label && !plan_.text_labels) batch.labels = {labels, layout.batch};
  batch.texts = std::move(step->texts);
  batch.keys = std::move(step->keys);
  batch.memory = std::move(step->slot);
  for (const Row& row : step->rows) {
    if (!row.counts) continue;
    ++batch.valid;
    ++received_of_parts_[plan_.source.Find(row.draw.item).part];
  }
  batch.epoch = step->epoch;
  const uint64_t after = plan_.batching.After(step->consumed);
  batch.last_of_epoch = plan_.batching.StepsFrom(after) == 0;
  batch.position = batch.last_of_epoch ? Position{step->epoch + 1, 0, plan_.fingerprint}
                                       : Position{step->epoch, after, plan_.fingerprint};
  received_ = batch.position;
  received_samples_ += batch.valid;
  received_digest_ += step->digest;
  std::sort(step->quarantine.begin(), step->quarantine.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  quarantined_ += step->quarantine.size();
  for (auto& [row, sample] : step->quarantine) {
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
  for (const Row& row : front.rows) {
    if (!row.status.ok()) {
      failure_ = row.status;
      return failure_;
    }
  }
  Batch batch = TakeFront();
  AdvanceSoon();
  return batch;
}

LoaderReport Loader::Engine::report() const {
  std::lock_guard lock(mutex_);
  LoaderReport report;
  report.samples = received_samples_;
  report.digest = received_digest_;
  report.position = received_;
  report.part_samples = received_of_parts_;
  report.stalls = ledger_.report();
  report.quarantine = quarantine_;
  report.quarantined = quarantined_;
  return report;
}

}  // namespace millrace
