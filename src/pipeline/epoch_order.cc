#include "pipeline/epoch_order.h"

#include <algorithm>

#include "base/rng.h"

namespace millrace {

namespace {

constexpr uint64_t kBucketDomain = 0x4d522d6275636b65;  // "MR-bucke"
constexpr uint64_t kStepsDomain = 0x4d522d7374657073;   // "MR-steps"

}  // namespace

Mix MixOfSteps(const std::vector<Batching>& buckets) {
  Mix mix;
  mix.stages.emplace_back();
  for (const Batching& bucket : buckets) {
    const uint64_t steps = bucket.StepsFrom(0);
    OrderPolicy in_order;
    in_order.shuffle = Shuffle::kNone;
    mix.parts.push_back({steps, in_order});
    mix.stages.front().weights.push_back(steps);
    mix.length += steps;
  }
  mix.fresh_passes = true;  // an epoch has each step once
  return mix;
}

EpochOrder::EpochOrder(const LoaderPlan& loader, uint64_t epoch) : loader_(loader) {
  const uint64_t seed = loader.options.seed;
  if (!loader.bucketed()) {
    plans_.push_back(loader.mix ? Plan(*loader.mix, seed, epoch)
                                : Plan(loader.batching.samples, loader.policy(), seed, epoch));
    cursors_.resize(1);
    return;
  }
  first_steps_ = {0};
  for (size_t i = 0; i < loader.buckets.size(); ++i) {
    const Batching& bucket = loader.buckets[i];
    plans_.emplace_back(bucket.samples, loader.policies[i], HashKey(kBucketDomain, {seed, i}), epoch);
    first_steps_.push_back(first_steps_.back() + bucket.StepsFrom(0));
    turns_per_step_ = std::max(turns_per_step_, bucket.batch * bucket.world);
  }
  cursors_.resize(plans_.size());
  steps_.emplace(MixOfSteps(loader.buckets), HashKey(kStepsDomain, {seed}), epoch);
}

EpochOrder::Place EpochOrder::PlaceOf(uint64_t step) const {
  const uint64_t item = steps_->At(step);
  const auto after = std::upper_bound(first_steps_.begin(), first_steps_.end(), item);
  const auto bucket = static_cast<size_t>(after - first_steps_.begin()) - 1;
  const Batching& batching = loader_.buckets[bucket];
  return {bucket, (item - first_steps_[bucket]) * batching.batch * batching.world};
}

EpochOrder::Step EpochOrder::StepAt(uint64_t consumed) const {
  Place place{0, consumed};
  if (steps_) place = PlaceOf(consumed);
  const Batching& batching = steps_ ? loader_.buckets[place.bucket] : loader_.batching;
  Step step{.shape = place.bucket, .batch = batching.Rows(place.consumed), .taken = batching.Taken(place.consumed)};
  step.rows = batching.repeats() ? step.batch : step.taken;
  return step;
}

EpochOrder::Row EpochOrder::RowAt(uint64_t consumed, uint64_t row) {
  Place place{0, consumed};
  if (steps_) place = PlaceOf(consumed);
  const Batching& batching = steps_ ? loader_.buckets[place.bucket] : loader_.batching;
  const Plan& plan = plans_[place.bucket];
  const Batching::Slot slot = batching.At(place.consumed, row);
  Row found;
  found.counts = !slot.padding;
  if (slot.padding) {
    found.draw = plan.DrawAt(slot.position);
  } else {
    std::unique_ptr<Plan::Cursor>& cursor = cursors_[place.bucket];
    if (cursor == nullptr || cursor->position() != slot.position) {
      cursor = std::make_unique<Plan::Cursor>(plan, slot.position, batching.world);
    }
    found.draw = cursor->NextDraw();
  }
  found.position = found.turn = slot.position;
  if (steps_) {
    const uint64_t first = loader_.source.FirstOf(place.bucket);
    found.draw.item += first;
    found.position += first;
    found.turn = consumed * turns_per_step_ + row * batching.world;
  }
  return found;
}

std::optional<uint64_t> EpochOrder::TurnOf(const Draw& draw, uint64_t consumed) const {
  if (!steps_) {
    const Batching& batching = loader_.batching;
    const uint64_t position = plans_.front().PositionOf(draw);
    if (position % batching.world != batching.rank) return std::nullopt;
    if (position < consumed || position >= batching.End(consumed)) return std::nullopt;
    return position;
  }
  const auto [bucket, row] = loader_.source.Find(draw.item);
  const Batching& batching = loader_.buckets[bucket];
  const uint64_t position = plans_[bucket].PositionOf(row);
  const uint64_t in_step = batching.batch * batching.world;
  if (position >= batching.End(0) || position % batching.world != batching.rank) return std::nullopt;
  const uint64_t step = steps_->PositionOf(first_steps_[bucket] + position / in_step);
  if (step < consumed) return std::nullopt;
  return step * turns_per_step_ + (position % in_step) / batching.world * batching.world;
}

std::optional<uint64_t> EpochOrder::AnyTurnOf(const Draw& draw) const {
  if (!steps_) {
    const uint64_t position = plans_.front().PositionOf(draw);
    if (position >= plans_.front().size()) return std::nullopt;
    return position;
  }
  const auto [bucket, row] = loader_.source.Find(draw.item);
  const Batching& batching = loader_.buckets[bucket];
  const uint64_t position = plans_[bucket].PositionOf(row);
  if (position >= batching.End(0)) return std::nullopt;
  const uint64_t in_step = batching.batch * batching.world;
  return steps_->PositionOf(first_steps_[bucket] + position / in_step) * turns_per_step_ + position % in_step;
}

std::optional<uint64_t> EpochOrder::NextTurnOf(uint64_t item, uint64_t from) const {
  if (steps_) {  // of a mix, in which each step comes once
    const std::optional<uint64_t> turn = AnyTurnOf({item, 0});
    return turn && *turn >= from ? turn : std::nullopt;
  }
  const Plan& plan = plans_.front();
  const uint64_t position = plan.NextPosition(item, from);
  return position < plan.size() ? std::optional<uint64_t>(position) : std::nullopt;
}

uint64_t EpochOrder::turns() const {
  return steps_ ? steps_->size() * turns_per_step_ : plans_.front().size();
}

}  // namespace millrace
