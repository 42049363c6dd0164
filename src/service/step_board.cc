#include "service/step_board.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/size.h"

namespace millrace {

namespace {

// If rows are shorter than this, a call of the system receives only some of them, which costs more than a copy.
constexpr uint64_t kLeastRowInPlace = uint64_t{8} << 10;

}  // namespace

StepBoard::StepBoard(const StreamSteps& steps, const BatchLayout& layout, uint64_t slots, Reservation slot_memory,
                     const BoardValues& values, size_t parts, OnAwaited on_awaited)
    : steps_(steps),
      layout_(layout),
      values_(values),
      next_sources_(steps.streams()),
      on_awaited_(std::move(on_awaited)),
      outlet_(mutex_,
              {.slot_bytes = layout.bytes(),
               .slots = slots,
               .budget = "memory budget",
               .parts = parts,
               .start = steps.PositionOf(steps.start())},
              std::move(slot_memory),
              {.cause = [this] { return CauseNow(); },
               .taken = [this](const Batch&) { OnTaken(); },
               .returned = [this] { room_.notify_all(); },
               .waits = [this] { UpdateAwaited(); }}) {
  OfferFirst();
}

// ---- Streams

StepBoard::Step* StepBoard::Open(uint64_t number) {
  if (number < first_ + open_.size()) return open_[number - first_].get();
  std::shared_ptr<MutableByteSpan> slot = outlet_.ring().TryAcquire();
  if (slot == nullptr) return nullptr;
  auto step = std::make_unique<Step>();
  step->place = steps_.PlaceOf(number).value_or(StreamSteps::Place{});
  step->slot = std::move(slot);
  Begin(*step);
  return open_.emplace_back(std::move(step)).get();
}

void StepBoard::Begin(Step& step) {
  const uint64_t rows = layout_.batch();
  step.missing = steps_.streams();
  step.sources.resize(steps_.streams());
  step.quarantined.resize(steps_.streams());
  step.claims.resize(steps_.streams());
  step.filling.resize(steps_.streams());
  Batch& batch = step.batch;
  batch.size = rows;
  batch.length = layout_.length();
  batch.arrays = layout_.Deliver(step.slot->data(), rows);
  batch.keys.resize(rows);
  batch.valid = steps_.ValidRows(step.place);
  batch.epoch = step.place.epoch;
  batch.last_of_epoch = steps_.EndsEpoch(step.place);
  batch.position = steps_.After(step.place);
}

StepBoard::Step* StepBoard::Acquire(uint64_t number, uint64_t value_bytes, Lock& lock) {
  Step* step = nullptr;
  room_.wait(lock, [&] {
    if (stopping_) return true;
    // A stream that is one step ahead of all others opens the step, never more: steps are opened in order.
    if (number > first_ + open_.size()) return false;
    // Rows that the program needs next do not wait: others leave when they have come.
    if (number > first_ && early_bytes_ + value_bytes > values_.ahead) return false;
    step = Open(number);
    return step != nullptr;
  });
  return stopping_ ? nullptr : step;
}

// Counts values that come to a step. False: they are more than a step may have.
bool StepBoard::LetIn(Step& step, bool is_first, uint64_t value_bytes) {
  if (!is_first) {
    step.early_bytes += value_bytes;
    early_bytes_ += value_bytes;
    return true;
  }
  if (value_bytes > values_.of_step - step.late_bytes) return false;
  step.late_bytes += value_bytes;
  return true;
}

// The streams that have not come yet will have as many as those that were let in, some of which are still copied.
absl::Status StepBoard::TooManyValues(const Step& step, uint64_t value_bytes) const {
  const uint64_t came = static_cast<uint64_t>(std::count(step.filling.begin(), step.filling.end(), true)) + 1;
  const uint64_t about = (step.early_bytes + step.late_bytes + value_bytes) / came * steps_.streams();
  // A budget that is larger than this one by a third has its share for values.
  const uint64_t enough =
      std::max(values_.share * std::max(about, step.late_bytes + value_bytes), values_.memory + values_.memory / 3);
  return absl::ResourceExhaustedError(
      fmt::format("the values of a batch (texts, arrays, bytes) take about {}, and {} of the memory budget of {} are "
                  "for them; choose a smaller batch, or a budget of {} MiB",
                  FormatSize(about), FormatSize(values_.of_step), FormatSize(values_.memory), (enough >> 20) + 1));
}

std::shared_ptr<RowsPlace> StepBoard::Claim(uint64_t number, uint64_t stream) {
  const Lock lock(mutex_);
  if (stopping_ || number < first_ || !steps_.PlaceOf(number)) return nullptr;
  while (number >= first_ + open_.size()) {
    if (Open(first_ + open_.size()) == nullptr) return nullptr;
  }
  Step& step = *open_[number - first_];
  Claimed& claimed = step.claims[stream];
  if (step.filling[stream] || !claimed.holder.expired()) return nullptr;
  if (claimed.place != nullptr) claimed.place->AwaitEnd();  // it ends this very moment
  claimed.place = std::make_shared<RowsPlace>(step.slot, PlacesOf(step, stream));
  std::shared_ptr<RowsPlace> held(claimed.place.get(), [place = claimed.place](RowsPlace*) { place->EndWriting(); });
  claimed.holder = held;
  return held;
}

std::vector<RowsPlace::Array> StepBoard::PlacesOf(const Step& step, uint64_t stream) const {
  const uint64_t first = steps_.FirstRow(step.place, stream);
  const uint64_t streams = steps_.streams();
  const uint64_t rows = steps_.RowsOfStream(step.place, stream);
  std::vector<RowsPlace::Array> places;
  for (const BatchArray& array : step.batch.arrays) {
    const uint64_t row_bytes = array.bytes.size() / step.batch.size;
    RowsPlace::Array& place = places.emplace_back(RowsPlace::Array{.bytes = rows * row_bytes, .rows = {}});
    if (row_bytes < kLeastRowInPlace) continue;
    if (streams == 1) place.rows = {array.bytes.first(place.bytes)};
    for (uint64_t row = 0; row < rows && streams > 1; ++row) {
      place.rows.push_back(array.bytes.subspan((first + row * streams) * row_bytes, row_bytes));
    }
  }
  return places;
}

// Row j of the stream becomes row FirstRow + V j of the batch. Other streams write other rows at the same time.
void StepBoard::CopyRows(const Step& step, uint64_t stream, WireBatch& frame, Batch* batch) const {
  const uint64_t first = steps_.FirstRow(step.place, stream);
  const uint64_t streams = steps_.streams();
  const uint64_t rows = steps_.RowsOfStream(step.place, stream);
  for (size_t array = 0; array < batch->arrays.size(); ++array) {
    if (frame.arrays[array].empty()) continue;  // the rows are there already, or do not come
    const MutableByteSpan to = batch->arrays[array].bytes;
    const uint64_t row_bytes = to.size() / batch->size;
    for (uint64_t row = 0; row < rows && row_bytes > 0; ++row) {
      std::memcpy(&to[(first + row * streams) * row_bytes], &frame.arrays[array][row * row_bytes], row_bytes);
    }
  }
  for (uint64_t row = 0; row < rows; ++row) {
    batch->keys[first + row * streams] = std::move(frame.facts.keys[row]);
    for (size_t column = 0; column < batch->values.size(); ++column) {
      batch->values[column].rows[first + row * streams] = std::move(frame.facts.values[column].rows[row]);
    }
  }
}

bool StepBoard::Fill(uint64_t number, uint64_t stream, WireBatch frame, size_t source) {
  const uint64_t value_bytes = ValueBytesOf(frame.facts.values);
  Lock lock(mutex_);
  Step* const step = Acquire(number, value_bytes, lock);
  if (step == nullptr) return false;
  if (!LetIn(*step, number == first_, value_bytes)) {
    FailLocked(number, TooManyValues(*step, value_bytes));
    return false;
  }
  step->filling[stream] = true;
  const std::shared_ptr<RowsPlace> claimed = step->claims[stream].place;
  Batch& batch = step->batch;
  if (batch.values.empty()) {
    for (const BatchValues& values : frame.facts.values) {
      batch.values.push_back({values.name, values.kind, std::vector<std::string>(batch.size)});
    }
  }
  lock.unlock();
  // Another call has ended, or was cancelled and ends soon.
  if (claimed != nullptr && claimed.get() != frame.rows.get()) claimed->AwaitEnd();
  CopyRows(*step, stream, frame, &batch);
  frame.rows.reset();
  lock.lock();
  batch.digest += frame.facts.digest;
  batch.token_count += frame.facts.token_count;
  batch.value_bytes += frame.facts.value_bytes;
  batch.odd_images += frame.facts.odd_images;
  step->quarantined[stream] = std::move(frame.facts.quarantined);
  step->sources[stream] = source;
  if (--step->missing == 0) {
    Finish(*step);
    if (number == first_) OfferFirst();
  }
  if (number == first_) UpdateAwaited();
  room_.notify_all();
  return true;
}

uint64_t StepBoard::Room() const {
  const Lock lock(mutex_);
  return RoomLocked();
}

void StepBoard::AwaitRoom(uint64_t step, std::chrono::nanoseconds limit) {
  Lock lock(mutex_);
  room_.wait_for(lock, limit, [&] { return stopping_ || step < RoomLocked(); });
}

void StepBoard::SetSource(uint64_t stream, size_t source) {
  const Lock lock(mutex_);
  next_sources_[stream] = source;
  UpdateAwaited();
}

std::optional<StepBoard::Wait> StepBoard::WaitFor(uint64_t step, uint64_t stream) const {
  const Lock lock(mutex_);
  const std::optional<Time> since = outlet_.waiting_since();
  if (!since || step != first_ || !IsMissing(stream)) return std::nullopt;
  return Wait{*since, awaited_ ? std::optional<Time>(awaited_since_) : std::nullopt};
}

void StepBoard::UpdateAwaited() {
  std::optional<size_t> source;
  if (outlet_.waiting_since()) {
    bool several = false;
    for (uint64_t stream = 0; stream < next_sources_.size(); ++stream) {
      if (!IsMissing(stream)) continue;
      several |= !next_sources_[stream] || (source && source != next_sources_[stream]);
      source = next_sources_[stream];
    }
    if (several) source.reset();
  }
  const bool is_same_step = std::exchange(awaited_step_, first_) == first_;
  if (source == awaited_ && is_same_step) return;
  const Time now = std::chrono::steady_clock::now();
  awaited_since_ = now;
  if (std::exchange(awaited_, source) != source) on_awaited_(source, now);
}

void StepBoard::Finish(Step& step) const {
  for (std::vector<QuarantinedSample>& samples : step.quarantined) {
    for (QuarantinedSample& sample : samples) step.batch.quarantined.push_back(std::move(sample));
  }
  step.batch.slot = *step.slot;
  step.batch.memory = std::move(step.slot);
  Shorten(&step.batch, steps_.Rows(step.place));
}

void StepBoard::Fail(uint64_t step, absl::Status status) {
  const Lock lock(mutex_);
  FailLocked(step, std::move(status));
}

void StepBoard::FailLocked(uint64_t step, absl::Status status) {
  if (failed_ && *failed_ <= step) return;
  failed_ = step;
  failure_ = std::move(status);
  if (step == first_) outlet_.End(failure_);
  UpdateAwaited();
}

void StepBoard::Stop() {
  const Lock lock(mutex_);
  stopping_ = true;
  room_.notify_all();
}

// ---- The consumer

// Gives the consumer the first step, or the end, once it is known which.
void StepBoard::OfferFirst() {
  if (!open_.empty() && open_.front()->missing == 0) {
    outlet_.Put(std::move(open_.front()->batch));
  } else if (failed_ && *failed_ == first_) {
    outlet_.End(failure_);
  } else if (!steps_.PlaceOf(first_)) {
    outlet_.End(absl::OkStatus());
  }
}

void StepBoard::OnTaken() {
  const Step& step = *open_.front();
  early_bytes_ -= step.early_bytes;
  const uint64_t batch_rows = steps_.Rows(step.place);
  for (uint64_t stream = 0; stream < step.sources.size(); ++stream) {
    const size_t source = step.sources[stream].value_or(0);
    if (rows_.size() <= source) rows_.resize(source + 1);
    const uint64_t first = std::min(steps_.FirstRow(step.place, stream), batch_rows);
    rows_[source] += (batch_rows - first + steps_.streams() - 1) / steps_.streams();
  }
  open_.pop_front();
  ++first_;
  OfferFirst();
  room_.notify_all();
}

StallCause StepBoard::CauseNow() const {
  for (size_t stream = 0; stream < next_sources_.size(); ++stream) {
    if (IsMissing(stream) && next_sources_[stream] != kLocalSource) return StallCause::kWorker;
  }
  return StallCause::kDecode;
}

std::vector<uint64_t> StepBoard::rows() const {
  const Lock lock(mutex_);
  return rows_;
}

}  // namespace millrace
