#include "plan/window_order.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/rng.h"

namespace millrace {
namespace {

constexpr uint64_t kExtentDomain = 0x4d522d657874656e;  // "MR-exten"
constexpr uint64_t kLaneDomain = 0x4d522d6c616e6573;    // "MR-lanes"
constexpr uint64_t kStartDomain = 0x4d522d7374617274;   // "MR-start"

uint64_t WindowCount(uint64_t samples, const OrderPolicy& policy) {
  const uint64_t extents = samples / policy.extent + (samples % policy.extent != 0 ? 1 : 0);
  return extents / policy.window + (extents % policy.window != 0 ? 1 : 0);
}

}  // namespace

uint64_t WindowOrder::Window::CutOf(uint64_t lane) const {
  uint64_t cut = 0;
  for (unsigned bit = 0; bit < lanes_log2; ++bit) {
    const uint64_t below = lane & ((uint64_t{1} << bit) - 1);
    if ((lane >> bit & 1) != 0) cut += Share(below, bit + 1);
  }
  return cut;
}

WindowOrder::Window::Cut WindowOrder::Window::ShareOf(uint64_t offset) const {
  Cut found{0, offset};
  for (unsigned bit = 0; bit < lanes_log2; ++bit) {
    const uint64_t first_half = Share(found.lane, bit + 1);
    if (found.offset < first_half) continue;
    found.offset -= first_half;
    found.lane |= uint64_t{1} << bit;
  }
  return found;
}

WindowOrder::WindowOrder(uint64_t samples, const OrderPolicy& policy, uint64_t seed, uint64_t epoch)
    : samples_(samples),
      lane_key_(HashKey(kLaneDomain, {seed, epoch})),
      extent_(policy.extent),
      lanes_log2_(static_cast<unsigned>(std::countr_zero(policy.lanes))),
      extents_(extent_.Divide(samples).quotient, HashKey(kExtentDomain, {seed, epoch})),
      windows_(WindowCount(samples, policy)) {
  const uint64_t rows = extents_.size() >> lanes_log2_;
  larger_ = rows % windows_;
  rows_ = Divider(std::max<uint64_t>(rows / windows_, 1));
  rows_of_larger_ = Divider(rows / windows_ + 1);
  rows_in_larger_ = larger_ * rows_of_larger_.divisor();
  start_ = HashKey(kStartDomain, {seed, epoch}) % windows_;
  start_sample_ = (FirstRow(start_) << lanes_log2_) * extent_.divisor();
}

/// Returns the first row of the window that is number `window` by slots.
uint64_t WindowOrder::FirstRow(uint64_t window) const {
  return window <= larger_ ? window * rows_of_larger_.divisor()
                           : rows_in_larger_ + (window - larger_) * rows_.divisor();
}

/// The last window has also the slots after the rows, which may make a row together.
WindowOrder::Window WindowOrder::WindowWithRow(uint64_t row) const {
  const uint64_t by_slots = row < rows_in_larger_
                                ? rows_of_larger_.Divide(row).quotient
                                : std::min(larger_ + rows_.Divide(row - rows_in_larger_).quotient, windows_ - 1);
  const bool last = by_slots == windows_ - 1;
  const uint64_t extent = extent_.divisor();
  Window window;
  window.number = by_slots >= start_ ? by_slots - start_ : by_slots + windows_ - start_;
  window.first_slot = FirstRow(by_slots) << lanes_log2_;
  const uint64_t first_sample = window.first_slot * extent;
  window.first = first_sample >= start_sample_ ? first_sample - start_sample_ : first_sample + samples_ - start_sample_;
  const uint64_t full = (last ? extents_.size() : FirstRow(by_slots + 1) << lanes_log2_) - window.first_slot;
  window.size = last ? samples_ - first_sample : full * extent;
  window.lanes_log2 = std::min(lanes_log2_, static_cast<unsigned>(std::bit_width(full | 1)) - 1);
  window.rows = full >> window.lanes_log2;
  window.line = window.size - ((window.rows * extent) << window.lanes_log2);
  return window;
}

WindowOrder::Window WindowOrder::WindowAt(uint64_t position) const {
  const uint64_t behind_start = samples_ - start_sample_;
  const uint64_t sample = position < behind_start ? position + start_sample_ : position - behind_start;
  return WindowWithRow(extent_.Divide(sample).quotient >> lanes_log2_);
}

uint64_t WindowOrder::SamplesOf(const Window& window, uint64_t lane) const {
  return window.rows * extent_.divisor() + window.Share(lane, window.lanes_log2);
}

Permutation WindowOrder::Lane(const Window& window, uint64_t lane) const {
  return {SamplesOf(window, lane), HashKey(lane_key_, {window.number, lane})};
}

WindowOrder::Place WindowOrder::PlaceOf(const Window& window, uint64_t lane, uint64_t cut, uint64_t index) const {
  const uint64_t own = window.rows * extent_.divisor();
  if (index < own) {
    const auto [row, sample] = extent_.Divide(index);
    return {(row << window.lanes_log2) + lane, sample};
  }
  const auto [extent, sample] = extent_.Divide(cut + index - own);
  return {(window.rows << window.lanes_log2) + extent, sample};
}

void WindowOrder::MapSlots(const Window& window, std::span<uint64_t> slots) const {
  for (uint64_t& slot : slots) slot += window.first_slot;
  if (window.first_slot * extent_.divisor() + window.size <= extents_.size() * extent_.divisor()) {
    extents_.Map(slots);
  } else {  // one of them may be the short extent
    for (uint64_t& slot : slots) slot = ExtentIn(slot);
  }
}

uint64_t WindowOrder::At(uint64_t position) const {
  const Window window = WindowAt(position);
  const uint64_t offset = position - window.first;
  const uint64_t lane = offset & (window.lanes() - 1);
  const uint64_t index = Lane(window, lane).At(offset >> window.lanes_log2);
  const Place place = PlaceOf(window, lane, window.line == 0 ? 0 : window.CutOf(lane), index);
  return ExtentIn(window.first_slot + place.slot) * extent_.divisor() + place.sample;
}

uint64_t WindowOrder::PositionOf(uint64_t sample) const {
  const auto [extent, sample_of_extent] = extent_.Divide(sample);
  const uint64_t slot = extent < extents_.size() ? extents_.IndexOf(extent) : extent;
  const Window window = WindowWithRow(slot >> lanes_log2_);
  const uint64_t own = window.rows * extent_.divisor();
  uint64_t lane = (slot - window.first_slot) & (window.lanes() - 1);
  uint64_t index = ((slot - window.first_slot) >> window.lanes_log2) * extent_.divisor() + sample_of_extent;
  if (slot >= window.first_slot_of_line()) {
    const auto cut = window.ShareOf((slot - window.first_slot_of_line()) * extent_.divisor() + sample_of_extent);
    lane = cut.lane;
    index = own + cut.offset;
  }
  return window.first + (Lane(window, lane).IndexOf(index) << window.lanes_log2) + lane;
}

void WindowReader::Enter(uint64_t position) {
  window_ = order_->WindowAt(position);
  largest_lane_ = order_->SamplesOf(window_, 0);
  large_lanes_ = order_->SamplesOf(window_, window_.lanes() - 1) > Permutation::kSmall;
  cuts_.assign(window_.lanes(), kNotMade);
  const bool tables = largest_lane_ <= Permutation::kSmall;
  tables_.resize(tables ? largest_lane_ << window_.lanes_log2 : 0);
  permutations_.assign(tables ? 0 : window_.lanes(), {0, 0});
  // It is worth it only if each extent is read several times by this reader.
  constexpr uint64_t kReads = 4;
  const uint64_t extent = order_->extent();
  extents_.resize(extent / kReads >= stride_ ? (window_.size + extent - 1) / extent : 0);
  for (uint64_t slot = 0; slot < extents_.size(); ++slot) extents_[slot] = slot;
  order_->MapSlots(window_, extents_);
  ReadMembers();
}

/// An extent has consecutive members, so that finding the first of them is nearly all the work; the places to look into
/// are loaded for all extents at once.
void WindowReader::ReadMembers() {
  const uint64_t extent = order_->extent();
  members_.resize(subset_ != nullptr && window_.size <= kMembers ? extents_.size() * extent : 0);
  if (members_.empty()) return;
  for (const uint64_t number : extents_) subset_->Prefetch(number * extent);
  for (size_t i = 0; i < extents_.size(); ++i) {
    const uint64_t first = extents_[i] * extent;
    subset_->Read(first, std::span(members_).subspan(i * extent, std::min(extent, subset_->size() - first)));
  }
}

void WindowReader::MakeLane(uint64_t lane) {
  cuts_[lane] = window_.CutOf(lane);
  const Permutation permutation = order_->Lane(window_, lane);
  if (tables_.empty()) {
    permutations_[lane] = permutation;
  } else {
    permutation.FillTable(std::span(tables_).subspan(lane * largest_lane_, permutation.size()));
  }
}

void WindowReader::MapInWindow(std::span<uint64_t> positions) {
  std::array<uint64_t, kBlock> lane_of;
  std::array<uint64_t, kBlock> sample_of_extent;
  const std::span<uint64_t> values = positions;  // position -> place in its lane -> slot -> extent -> sample
  for (size_t i = 0; i < positions.size(); ++i) {
    const uint64_t offset = positions[i] - window_.first;
    lane_of[i] = offset & (window_.lanes() - 1);
    if (cuts_[lane_of[i]] == kNotMade) MakeLane(lane_of[i]);
    values[i] = offset >> window_.lanes_log2;
  }
  if (!tables_.empty()) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = tables_[lane_of[i] * largest_lane_ + values[i]];
  } else if (large_lanes_) {
    std::array<const Permutation*, kBlock> permutation_of;
    for (size_t i = 0; i < values.size(); ++i) permutation_of[i] = &permutations_[lane_of[i]];
    Permutation::MapEach(std::span(permutation_of).first(values.size()), values);
  } else {
    for (size_t i = 0; i < values.size(); ++i) values[i] = permutations_[lane_of[i]].At(values[i]);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const auto [slot, sample] = order_->PlaceOf(window_, lane_of[i], cuts_[lane_of[i]], values[i]);
    sample_of_extent[i] = sample;
    if (!members_.empty()) {
      values[i] = members_[slot * order_->extent() + sample];
    } else {
      values[i] = extents_.empty() ? slot : extents_[slot];
    }
  }
  if (!members_.empty()) return;
  if (extents_.empty()) order_->MapSlots(window_, values);
  for (size_t i = 0; i < values.size(); ++i) values[i] = values[i] * order_->extent() + sample_of_extent[i];
  if (subset_ == nullptr) return;
  for (uint64_t& value : values) value = subset_->At(value);
}

void WindowReader::Map(std::span<uint64_t> positions) {
  while (!positions.empty()) {
    if (positions.front() < window_.first || positions.front() >= window_.end()) Enter(positions.front());
    const auto end = std::lower_bound(positions.begin(), positions.end(), window_.end());
    const auto count = static_cast<size_t>(end - positions.begin());
    MapInWindow(positions.first(count));
    positions = positions.subspan(count);
  }
}

}  // namespace millrace
