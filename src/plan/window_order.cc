#include "plan/window_order.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/rng.h"

namespace millrace {
namespace {

constexpr uint64_t kExtentDomain = 0x4d522d657874656e;  // "MR-exten"
constexpr uint64_t kLaneDomain = 0x4d522d6c616e6573;    // "MR-lanes"

uint64_t ExtentCount(uint64_t samples, uint64_t extent) {
  return samples / extent + (samples % extent != 0 ? 1 : 0);
}

}  // namespace

WindowOrder::WindowOrder(uint64_t samples, const OrderPolicy& policy, uint64_t seed, uint64_t epoch)
    : samples_(samples),
      window_(policy.window),
      lanes_log2_(static_cast<unsigned>(std::countr_zero(policy.lanes))),
      lane_key_(HashKey(kLaneDomain, {seed, epoch})),
      extent_(policy.extent),
      window_slots_(policy.window),
      window_span_(policy.window * policy.extent),
      extents_(ExtentCount(samples, policy.extent), HashKey(kExtentDomain, {seed, epoch})) {
  if (samples % policy.extent == 0) return;
  missing_ = policy.extent - samples % policy.extent;
  short_slot_ = extents_.Where(extents_.size() - 1);
  short_window_ = window_slots_.Divide(short_slot_).quotient;
}

uint64_t WindowOrder::FirstPosition(uint64_t window) const {
  const uint64_t first = window * window_span_.divisor() - (window > short_window_ ? missing_ : 0);
  return std::min(first, samples_);
}

uint64_t WindowOrder::WindowOf(uint64_t position) const {
  // Windows behind the short extent begin earlier by what it lacks.
  const bool behind = short_window_ != UINT64_MAX && position >= FirstPosition(short_window_ + 1);
  return window_span_.Divide(position + (behind ? missing_ : 0)).quotient;
}

/// The group of the extent that is number `index` among the full extents of the window by slot, which is also the order
/// in which groups follow each other; `index` beyond them means the short extent.
WindowOrder::Group WindowOrder::GroupOfExtent(uint64_t window, uint64_t index) const {
  const uint64_t first_slot = window * window_;
  const uint64_t slots = std::min(window_, extents_.size() - first_slot);
  const bool has_short = window == short_window_;
  const uint64_t full = slots - (has_short ? 1 : 0);
  const uint64_t extent = extent_.divisor();

  Group group;
  group.window = window;
  if (index >= full) {
    group.first = FirstPosition(window) + full * extent;
    group.extents = 1;
    group.lane_samples = extent - missing_;
    group.short_extent = true;
    group.first_slot = short_slot_;
    group.skipped_slot = UINT64_MAX;
    return group;
  }
  uint64_t before = 0;
  unsigned log2 = lanes_log2_;
  uint64_t count = full >> log2 << log2;
  while (index >= before + count) {
    before += count;
    --log2;
    count = (full - before) >> log2 << log2;
  }
  group.first = FirstPosition(window) + before * extent;
  group.extents = count;
  group.lane_samples = (count >> log2) * extent;
  group.lanes_log2 = log2;
  group.first_slot = first_slot + before;
  group.skipped_slot = has_short ? short_slot_ : UINT64_MAX;
  return group;
}

WindowOrder::Group WindowOrder::GroupOf(uint64_t position) const {
  const uint64_t window = WindowOf(position);
  return GroupOfExtent(window, extent_.Divide(position - FirstPosition(window)).quotient);
}

Permutation WindowOrder::Lane(const Group& group, uint64_t lane) const {
  const uint64_t lanes = group.short_extent ? 0 : group.lanes();
  return {group.lane_samples, HashKey(lane_key_, {group.window, lanes, lane})};
}

uint64_t WindowOrder::SlotOf(const Group& group, uint64_t index) const {
  const uint64_t slot = group.first_slot + index;
  return slot + (slot >= group.skipped_slot ? 1 : 0);
}

uint64_t WindowOrder::At(uint64_t position) const {
  const Group group = GroupOf(position);
  const uint64_t offset = position - group.first;
  const uint64_t lane = offset & (group.lanes() - 1);
  const auto [extent_of_lane, sample] = extent_.Divide(Lane(group, lane).At(offset >> group.lanes_log2));
  const uint64_t index = (extent_of_lane << group.lanes_log2) + lane;
  return extents_.At(SlotOf(group, index)) * extent_.divisor() + sample;
}

uint64_t WindowOrder::Where(uint64_t sample) const {
  const auto [extent, sample_of_extent] = extent_.Divide(sample);
  const uint64_t slot = extents_.Where(extent);
  const auto [window, slot_of_window] = window_slots_.Divide(slot);
  const bool is_short = slot == short_slot_;
  const bool behind_short = window == short_window_ && slot > short_slot_;
  const Group group = GroupOfExtent(window, is_short ? UINT64_MAX : slot_of_window - (behind_short ? 1 : 0));

  const uint64_t index = slot - (behind_short ? 1 : 0) - group.first_slot;
  const uint64_t lane = index & (group.lanes() - 1);
  const uint64_t in_lane = (index >> group.lanes_log2) * extent_.divisor() + sample_of_extent;
  return group.first + (Lane(group, lane).Where(in_lane) << group.lanes_log2) + lane;
}

void WindowReader::Enter(uint64_t position) {
  group_ = order_->GroupOf(position);
  small_lanes_ = group_.lane_samples <= Permutation::kSmall;
  lanes_.assign(group_.lanes(), Permutation(0, 0));
  lane_made_.assign(group_.lanes(), 0);
  tables_.resize(small_lanes_ ? group_.lane_samples << group_.lanes_log2 : 0);
  // Worth it only where each extent is read several times by this reader.
  constexpr uint64_t kReads = 4;
  extents_.resize(order_->extent_divider().divisor() / kReads >= stride_ ? group_.extents : 0);
  for (uint64_t index = 0; index < extents_.size(); ++index) extents_[index] = order_->SlotOf(group_, index);
  order_->extents_by_slot().Map(extents_);
}

void WindowReader::MakeLane(uint64_t lane) {
  lane_made_[lane] = 1;
  lanes_[lane] = order_->Lane(group_, lane);
  if (!small_lanes_) return;
  lanes_[lane].FillTable(std::span(tables_).subspan(lane * group_.lane_samples, group_.lane_samples));
}

void WindowReader::MapInGroup(std::span<uint64_t> positions) {
  std::array<uint64_t, kBlock> lane_of;
  std::array<const Permutation*, kBlock> permutation_of;
  std::array<uint64_t, kBlock> sample_of_extent;
  const std::span<uint64_t> values =
      positions;  // position -> place in its lane -> index of the extent -> extent -> sample
  for (size_t i = 0; i < positions.size(); ++i) {
    const uint64_t offset = positions[i] - group_.first;
    const uint64_t lane = offset & (group_.lanes() - 1);
    if (lane_made_[lane] == 0) MakeLane(lane);
    lane_of[i] = lane;
    permutation_of[i] = &lanes_[lane];
    values[i] = offset >> group_.lanes_log2;
  }
  if (small_lanes_) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = tables_[lane_of[i] * group_.lane_samples + values[i]];
  } else {
    Permutation::MapEach(std::span(permutation_of).first(values.size()), values);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const auto [extent_of_lane, sample] = order_->extent_divider().Divide(values[i]);
    sample_of_extent[i] = sample;
    const uint64_t index = (extent_of_lane << group_.lanes_log2) + lane_of[i];
    values[i] = extents_.empty() ? order_->SlotOf(group_, index) : extents_[index];
  }
  if (extents_.empty()) order_->extents_by_slot().Map(values);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = values[i] * order_->extent_divider().divisor() + sample_of_extent[i];
  }
}

void WindowReader::Map(std::span<uint64_t> positions) {
  while (!positions.empty()) {
    if (positions.front() < group_.first || positions.front() >= group_.end()) Enter(positions.front());
    const auto end = std::lower_bound(positions.begin(), positions.end(), group_.end());
    const auto count = static_cast<size_t>(end - positions.begin());
    MapInGroup(positions.first(count));
    positions = positions.subspan(count);
  }
}

}  // namespace millrace
