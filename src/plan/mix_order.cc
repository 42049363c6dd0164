#include "plan/mix_order.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "base/rng.h"
#include "plan/apportion.h"

namespace millrace {
namespace {

using Wide = unsigned __int128;

constexpr uint64_t kPartDomain = 0x4d522d6d69782d70;    // "MR-mix-p": the seed of a part
constexpr uint64_t kCyclesDomain = 0x4d522d6d69782d63;  // "MR-mix-c": the cycles of a phase
constexpr uint64_t kDrawDomain = 0x4d522d6d69782d64;    // "MR-mix-d": draws with replacement
constexpr uint64_t kCountsDomain = 0x4d522d6d69782d6e;  // "MR-mix-n": the counts of the parts
constexpr size_t kPlansKept = 256;

uint64_t CeilDivide(uint64_t value, uint64_t by) {
  return value / by + (value % by != 0 ? 1 : 0);
}

Apportionment ApportionmentOf(std::span<const uint64_t> weights, uint64_t seed) {
  return {weights, HashKey(kCountsDomain, {seed})};
}

/// Returns the number of the stretch of a stage that is in an epoch. It grows along the run.
uint64_t TurnOf(uint64_t epoch, size_t stage) {
  return epoch + stage;
}

/// Returns what each part has given before an epoch. It is the sum of its counts over the stages. A stage has three
/// spans: the part of the epoch in which it begins, whole epochs, and the part of the epoch in which it ends.
std::vector<Wide> DrawnBefore(const Mix& mix, uint64_t seed, uint64_t epoch) {
  std::vector<Wide> drawn(mix.parts.size(), 0);
  const Wide length = mix.length;
  const Wide end = epoch * length;
  for (size_t stage = 0; stage < mix.stages.size() && mix.stages[stage].from < end; ++stage) {
    const Apportionment shares = ApportionmentOf(mix.stages[stage].weights, seed);
    const Wide until = stage + 1 < mix.stages.size() ? std::min<Wide>(mix.stages[stage + 1].from, end) : end;
    for (Wide now = mix.stages[stage].from; now < until;) {
      const Wide to = std::min(until, (now / length + 1) * length);
      const bool whole = to - now == length;
      const Wide turns = whole ? (until - now) / length : 1;
      const auto turn = TurnOf(static_cast<uint64_t>(now / length), stage);
      shares.AddTotals(static_cast<uint64_t>(to - now), turn, static_cast<uint64_t>(turns), drawn);
      now = whole ? now + turns * length : to;
    }
  }
  return drawn;
}

}  // namespace

std::vector<uint64_t> MixPhase::CountsOf(uint64_t seed) const {
  return ApportionmentOf(weights, seed).CountsOf(length, turn);
}

std::vector<MixPhase> PhasesOf(const Mix& mix, uint64_t epoch) {
  const Wide start = static_cast<Wide>(epoch) * mix.length;
  std::vector<MixPhase> phases;
  for (uint64_t first = 0; first < mix.length;) {
    const Mix::Stage& stage = mix.StageAt(start + first);
    uint64_t length = mix.length - first;
    const Mix::Stage* next = &stage + 1;
    if (next != mix.stages.data() + mix.stages.size() && next->from - (start + first) < length) {
      length = static_cast<uint64_t>(next->from - (start + first));
    }
    const auto number = static_cast<size_t>(&stage - mix.stages.data());
    phases.push_back({first, length, stage.weights, TurnOf(epoch, number)});
    first += length;
  }
  return phases;
}

MixOrder::MixOrder(const Mix& mix, uint64_t seed, uint64_t epoch)
    : parts_(mix.parts), first_items_{0}, length_(mix.length), seed_(seed), epoch_(epoch), draws_(mix.draws) {
  for (const Mix::Part& part : parts_) first_items_.push_back(first_items_.back() + part.items);
  std::vector<uint64_t> before(parts_.size(), 0);
  for (const MixPhase& phase : PhasesOf(mix, epoch)) {
    const std::vector<uint64_t> counts = phase.CountsOf(seed);
    const uint64_t key = HashKey(kCyclesDomain, {seed, epoch, phase.first});
    phases_.push_back({phase.first, Interleave(counts, key), before, {}});
    for (size_t part = 0; part < counts.size(); ++part) before[part] += counts[part];
    if (draws_ != Draws::kIndependent) continue;
    phases_.back().weights.resize(parts_.size());
    std::partial_sum(phase.weights.begin(), phase.weights.end(), phases_.back().weights.begin());
  }
  if (draws_ != Draws::kExact) return;
  const std::vector<Wide> drawn = mix.fresh_passes ? std::vector<Wide>(parts_.size()) : DrawnBefore(mix, seed, epoch);
  for (size_t part = 0; part < parts_.size(); ++part) {
    const uint64_t items = std::max<uint64_t>(1, parts_[part].items);
    Place start{static_cast<uint64_t>(drawn[part] / items), static_cast<uint64_t>(drawn[part] % items)};
    // Passes that begin with the epoch are numbered as if each epoch had as many as one can have.
    if (mix.fresh_passes) start.pass = epoch * CeilDivide(length_, items);
    bases_.push_back({start, before[part]});
  }
  for (size_t part = 0; part < parts_.size() && parts_.size() <= kPlansKept; ++part) {
    first_plans_.push_back(PlanOf(part, bases_[part].start.pass));
  }
}

const MixOrder::Phase& MixOrder::PhaseOf(uint64_t position) const {
  const auto after = std::upper_bound(phases_.begin(), phases_.end(), position,
                                      [](uint64_t value, const Phase& phase) { return value < phase.first; });
  return *(after - 1);
}

MixOrder::Place MixOrder::PlaceOf(size_t part, uint64_t number) const {
  const Place& start = bases_[part].start;
  const uint64_t items = parts_[part].items;
  const uint64_t position = start.position + number;  // both are below 2^60
  if (position < items) return {start.pass, position};
  return {start.pass + position / items, position % items};
}

Plan MixOrder::PlanOf(size_t part, uint64_t pass) const {
  return {parts_[part].items, parts_[part].policy, HashKey(kPartDomain, {seed_, part}), pass};
}

size_t MixOrder::PartOf(uint64_t item) const {
  const auto after = std::upper_bound(first_items_.begin(), first_items_.end(), item);
  return static_cast<size_t>(after - first_items_.begin()) - 1;
}

/// The position is the turn: no two draws are the same.
Draw MixOrder::DrawFreely(const Phase& phase, uint64_t position) const {
  Rng rng(HashKey(kDrawDomain, {seed_, epoch_, position}));
  size_t part = 0;
  if (draws_ == Draws::kIndependent) {
    const uint64_t ticket = rng.Below(phase.weights.back());
    part = static_cast<size_t>(std::upper_bound(phase.weights.begin(), phase.weights.end(), ticket) -
                               phase.weights.begin());
  } else {
    part = phase.interleave.At(position - phase.first).part;
  }
  return {first_items_[part] + rng.Below(parts_[part].items), position};
}

Draw MixOrder::At(uint64_t position) const {
  const Phase& phase = PhaseOf(position);
  if (draws_ != Draws::kExact) return DrawFreely(phase, position);
  const auto [part, number] = phase.interleave.At(position - phase.first);
  const auto [pass, place] = PlaceOf(part, phase.before[part] + number);
  const bool kept = !first_plans_.empty() && pass == bases_[part].start.pass;
  return {first_items_[part] + (kept ? first_plans_[part].At(place) : PlanOf(part, pass).At(place)), pass};
}

uint64_t MixOrder::PositionOf(const Draw& draw) const {
  if (!invertible()) return size();
  const size_t part = PartOf(draw.item);
  const auto& [start, elements] = bases_[part];
  const uint64_t items = parts_[part].items;
  const uint64_t passes = draw.turn - start.pass;  // wraps where the turn is before the epoch, and is then too large
  if (elements == 0 || passes > (start.position + elements) / items) return size();
  const uint64_t sample = draw.item - first_items_[part];
  const bool kept = !first_plans_.empty() && passes == 0;
  const uint64_t place = kept ? first_plans_[part].PositionOf(sample) : PlanOf(part, draw.turn).PositionOf(sample);
  const Wide element = static_cast<Wide>(passes) * items + place;
  if (element < start.position || element - start.position >= elements) return size();
  const auto number = static_cast<uint64_t>(element - start.position);
  const auto after =
      std::upper_bound(phases_.begin(), phases_.end(), number,
                       [part](uint64_t value, const Phase& phase) { return value < phase.before[part]; });
  const Phase& phase = *(after - 1);
  return phase.first + phase.interleave.PositionOf({static_cast<uint32_t>(part), number - phase.before[part]});
}

std::vector<uint64_t> MixOrder::Positions(uint64_t item) const {
  std::vector<uint64_t> found;
  if (!invertible()) {
    for (uint64_t position = 0; position < size(); ++position) {
      if (At(position).item == item) found.push_back(position);
    }
    return found;
  }
  const auto& [start, elements] = bases_[PartOf(item)];
  if (elements == 0) return found;
  const uint64_t passes = (start.position + elements - 1) / ItemsOf(PartOf(item)) + 1;
  for (uint64_t pass = 0; pass < passes; ++pass) {
    const uint64_t position = PositionOf(Draw{item, start.pass + pass});
    if (position < size()) found.push_back(position);
  }
  // Passes follow each other from cycle to cycle, but not within one.
  std::sort(found.begin(), found.end());
  return found;
}

// Returns how many elements of a part in this epoch come for certain before the cycle that has the position. At the end
// of a cycle a part is behind its share by no more than half an element for each level of the tree over the parts.
uint64_t MixOrder::LeastBeforeCycle(size_t part, uint64_t position) const {
  const Phase& phase = PhaseOf(position);
  const uint64_t first = phase.interleave.CycleOf(position - phase.first).first;
  const uint64_t count = phase.interleave.count(static_cast<uint32_t>(part));
  const auto share = static_cast<uint64_t>(static_cast<Wide>(first) * count / phase.interleave.size());
  const auto slack = static_cast<uint64_t>(std::bit_width(parts_.size())) / 2 + 1;
  return phase.before[part] + share - std::min(share, slack);
}

uint64_t MixOrder::NextPosition(uint64_t item, uint64_t from) const {
  if (!invertible()) {
    for (uint64_t position = from; position < size(); ++position) {
      if (At(position).item == item) return position;
    }
    return size();
  }
  const size_t part = PartOf(item);
  const auto& [start, elements] = bases_[part];
  if (elements == 0 || from >= size()) return size();
  const uint64_t passes = (start.position + elements - 1) / ItemsOf(part) + 1;
  const uint64_t cycle = phases_.front().interleave.cycle_length();  // of all phases
  uint64_t next = size();
  for (uint64_t pass = (start.position + LeastBeforeCycle(part, from)) / ItemsOf(part); pass < passes; ++pass) {
    const uint64_t position = PositionOf(Draw{item, start.pass + pass});
    // Passes follow each other from cycle to cycle, but not within one.
    if (next < size() && position >= next + cycle) break;
    if (position >= from) next = std::min(next, position);
  }
  return next;
}

MixReader::MixReader(const MixOrder& order, uint64_t first, uint64_t stride)
    : order_(&order), ahead_(first), stride_(stride), readers_(order.parts() <= kReaders ? order.parts() : 0) {}

Draw MixReader::Next() {
  if (used_ == block_.size()) Fill();
  return block_[used_++];
}

void MixReader::Fill() {
  used_ = 0;
  block_.clear();
  offsets_.clear();
  const MixOrder::Phase& phase = order_->PhaseOf(ahead_);
  const Interleave::Cycle cycle = phase.interleave.CycleOf(ahead_ - phase.first);
  const uint64_t begin = phase.first + cycle.first;
  while (ahead_ < begin + cycle.places) {
    offsets_.push_back(ahead_ - begin);
    ahead_ = stride_ < order_->size() - ahead_ ? ahead_ + stride_ : order_->size();
  }
  // A reader that wants little of a cycle does better without it.
  constexpr uint64_t kWorthIt = 16;
  if (order_->invertible() && offsets_.size() * kWorthIt >= cycle.places) {
    FillFromCycle(phase, cycle);
  } else {
    for (const uint64_t offset : offsets_) block_.push_back(order_->At(begin + offset));
  }
}

void MixReader::FillFromCycle(const MixOrder::Phase& phase, const Interleave::Cycle& cycle) {
  block_.resize(offsets_.size());
  slots_.assign(cycle.places, 0);
  phase.interleave.MapInCycle(cycle, offsets_);
  for (size_t i = 0; i < offsets_.size(); ++i) slots_[offsets_[i]] = static_cast<uint32_t>(i) + 1;
  phase.interleave.Runs(cycle, &runs_);
  new_readers_ = 0;
  const uint32_t* slots = slots_.data();
  for (const Interleave::Run& run : runs_) {
    MapRun(phase, run, slots);
    slots += run.count;
  }
}

void MixReader::MapRun(const MixOrder::Phase& phase, const Interleave::Run& run, const uint32_t* slots) {
  const uint64_t items = order_->ItemsOf(run.part);
  MixOrder::Place place = order_->PlaceOf(run.part, phase.before[run.part] + run.first);
  for (uint64_t i = 0; i < run.count; ++i) {
    if (slots[i] != 0) {
      positions_.push_back(place.position);
      outs_.push_back(slots[i] - 1);
    }
    if (++place.position < items) continue;
    MapPass(run.part, place.pass);
    place = {place.pass + 1, 0};
  }
  MapPass(run.part, place.pass);
}

void MixReader::MapPass(size_t part, uint64_t pass) {
  if (positions_.empty()) return;
  if (readers_.empty()) {
    const Plan plan = order_->PlanOf(part, pass);
    for (uint64_t& position : positions_) position = plan.At(position);
  } else {
    std::unique_ptr<PassReader>& kept = readers_[part];
    if (kept == nullptr || kept->pass != pass) {
      kept = std::make_unique<PassReader>(PassReader{pass, order_->PlanOf(part, pass)});
    }
    kept->mapped += positions_.size();
    if (!kept->reader && kept->mapped > kBeforeReader && new_readers_ < kNewReaders) {
      kept->reader.emplace(kept->plan, stride_);
      ++new_readers_;
    }
    if (kept->reader) {
      kept->reader->Map(positions_);
    } else {
      for (uint64_t& position : positions_) position = kept->plan.At(position);
    }
  }
  const uint64_t first = order_->FirstItemOf(part);
  for (size_t i = 0; i < positions_.size(); ++i) block_[outs_[i]] = {first + positions_[i], pass};
  positions_.clear();
  outs_.clear();
}

}  // namespace millrace
