#include "service/stream_steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/buffer.h"
#include "service/row_functions.h"

namespace millrace {

StreamSteps::StreamSteps(const LoaderPlan& plan, uint64_t streams, bool with_function)
    : streams_(streams), batching_(plan.batching), fingerprint_(plan.fingerprint), epochs_(plan.options.epochs) {
  const Position start = plan.options.start.value_or(Position{});
  start_ = {start.epoch, start.consumed};
  first_steps_ = batching_.StepsFrom(start_.consumed);
  for (const BatchArray& array : plan.layouts.front().Deliver(Buffer(plan.slot_bytes).data(), batching_.batch)) {
    const bool comes = !with_function || IsOriginArray(array.name);
    row_bytes_.push_back(comes ? array.bytes.size() / batching_.batch : 0);
  }
  for (const PlannedField& field : plan.fields) {
    if (field.wanted.is_value()) values_.emplace_back(field.wanted.name, field.wanted.kind);
  }
  if (with_function) values_.emplace_back(kFunctionEntry, BatchField::Kind::kBytes);
}

uint64_t StreamSteps::end() const {
  if (epochs_ == 0) return UINT64_MAX;
  return start_.epoch >= epochs_ ? 0 : first_steps_ + (epochs_ - start_.epoch - 1) * batching_.StepsFrom(0);
}

std::optional<StreamSteps::Place> StreamSteps::PlaceOf(uint64_t step) const {
  if (step >= end()) return std::nullopt;
  Place place = start_;
  if (step < first_steps_) {
    place.consumed += step * batching_.batch * batching_.world;
  } else {
    const uint64_t steps = batching_.StepsFrom(0);
    place.epoch += 1 + (step - first_steps_) / steps;
    place.consumed = (step - first_steps_) % steps * batching_.batch * batching_.world;
  }
  return place;
}

Position StreamSteps::After(const Place& place) const {
  if (EndsEpoch(place)) return {place.epoch + 1, 0, fingerprint_};
  return {place.epoch, batching_.After(place.consumed), fingerprint_};
}

uint64_t StreamSteps::FirstRow(const Place& place, uint64_t stream) const {
  // Batching defines this: the trainer's first position, also after the end, where positions wrap.
  const uint64_t world = batching_.world;
  const uint64_t first = place.consumed + (batching_.rank + world - place.consumed % world) % world;
  const uint64_t turn = (first - batching_.rank) / world % streams_;
  return (stream + streams_ - turn) % streams_;
}

Batching StreamSteps::OfStream(uint64_t stream) const {
  Batching batching = batching_;
  batching.batch /= streams_;
  batching.rank += batching_.world * stream;
  batching.world *= streams_;
  return batching;
}

uint64_t StreamSteps::RowsOfStream(const Place& place, uint64_t stream) const {
  return OfStream(stream).Rows(place.consumed);
}

LoaderOptions StreamSteps::OptionsOf(const LoaderOptions& trainer, uint64_t stream, const Place& place) const {
  const Batching batching = OfStream(stream);
  LoaderOptions options = trainer;
  options.batch = batching.batch;
  options.rank = batching.rank;
  options.world = batching.world;
  options.start = PositionOf(place);
  return options;
}

absl::Status StreamSteps::Check(const Place& place, uint64_t stream, const WireBatch& frame) const {
  const FrameFacts& facts = frame.facts;
  const auto wrong = [&](std::string_view what) {
    return absl::DataLossError(
        fmt::format("the batch at {} has {} that the plan does not have", PositionOf(place).ToString(), what));
  };
  const Position after = After(place);
  if (facts.epoch != place.epoch || facts.position.ToString() != after.ToString() ||
      facts.last_of_epoch != EndsEpoch(place)) {
    return wrong("a place");
  }
  if (facts.size != RowsOfStream(place, stream) || facts.keys.size() != facts.size) return wrong("a number of rows");
  if (facts.valid != OfStream(stream).Taken(place.consumed)) return wrong("a number of samples");
  const bool same_arrays =
      std::equal(facts.array_bytes.begin(), facts.array_bytes.end(), row_bytes_.begin(), row_bytes_.end(),
                 [&](uint64_t got, uint64_t of_row) { return got == facts.size * of_row; });
  if (!same_arrays) return wrong("arrays");
  const bool same_values =
      std::equal(facts.values.begin(), facts.values.end(), values_.begin(), values_.end(),
                 [&](const BatchValues& got, const auto& expected) {
                   return got.name == expected.first && got.kind == expected.second && got.rows.size() == facts.size;
                 });
  if (!same_values) return wrong("values");
  // Rows without a result are those that this process has decoded.
  const bool has_all = values_.empty() || values_.back().first != kFunctionEntry ||
                       std::none_of(facts.values.back().rows.begin(), facts.values.back().rows.end(),
                                    [](const std::string& row) { return row.empty(); });
  return has_all ? absl::OkStatus() : wrong("results");
}

}  // namespace millrace
