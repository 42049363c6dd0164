#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/divider.h"
#include "plan/permutation.h"
#include "plan/plan.h"

namespace millrace {

/// The windowed shuffle (docs/plan.md): extents are permuted into slots, `policy.window` slots in a row make a window,
/// and the samples of a window are dealt to lanes, each of which is permuted by itself. Everything is arithmetic on a
/// handful of numbers. Immutable and thread-safe.
class WindowOrder {
 public:
  /// A run of consecutive positions within a window whose samples are dealt to the same number of lanes.
  struct Group {
    uint64_t window = 0;
    uint64_t first = 0;  // position
    uint64_t extents = 0;
    uint64_t lane_samples = 0;
    unsigned lanes_log2 = 0;
    bool short_extent = false;  // the group is the short extent, alone
    uint64_t first_slot = 0;    // slot of its extent 0, as if the short extent had none
    uint64_t skipped_slot = 0;  // the slot of the short extent where it lies in this window, else UINT64_MAX

    uint64_t lanes() const { return uint64_t{1} << lanes_log2; }
    uint64_t end() const { return first + (lane_samples << lanes_log2); }
  };

  /// samples > 0; policy.Check() is ok.
  WindowOrder(uint64_t samples, const OrderPolicy& policy, uint64_t seed, uint64_t epoch);

  uint64_t At(uint64_t position) const;
  uint64_t Where(uint64_t sample) const;
  uint64_t WindowOf(uint64_t position) const;
  uint64_t FirstPosition(uint64_t window) const;  // the number of samples beyond the last window
  uint64_t samples() const { return samples_; }

  // The parts of At, for WindowReader.
  Group GroupOf(uint64_t position) const;
  Permutation Lane(const Group& group, uint64_t lane) const;
  uint64_t SlotOf(const Group& group, uint64_t index) const;  // of the group's extent `index`
  const Permutation& extents_by_slot() const { return extents_; }
  Divider extent_divider() const { return extent_; }

 private:
  Group GroupOfExtent(uint64_t window, uint64_t index) const;

  uint64_t samples_;
  uint64_t window_;  // extents
  unsigned lanes_log2_;
  uint64_t lane_key_;     // of (seed, epoch)
  Divider extent_;        // samples of an extent
  Divider window_slots_;  // the same as window_
  Divider window_span_;   // samples of a window of full extents
  Permutation extents_;   // slot -> extent
  uint64_t missing_ = 0;  // samples that the last extent lacks to be full
  uint64_t short_slot_ = UINT64_MAX;
  uint64_t short_window_ = UINT64_MAX;
};

/// WindowOrder::At for a reader that goes forward: keeps the tables of the group that it is in. Memory: up to 8 bytes
/// for each extent of a window, 128 for each lane and 1 for each sample of lanes of up to Permutation::kSmall samples.
/// Not thread-safe; must not outlive the order.
class WindowReader {
 public:
  static constexpr size_t kBlock = 64;

  /// `stride` is the usual distance between positions; it only decides what is worth a table.
  WindowReader(const WindowOrder& order, uint64_t stride) : order_(&order), stride_(stride) {}

  /// Replaces each position by its sample. At most kBlock positions, in ascending order.
  void Map(std::span<uint64_t> positions);

 private:
  void Enter(uint64_t position);
  void MapInGroup(std::span<uint64_t> positions);
  void MakeLane(uint64_t lane);

  const WindowOrder* order_;
  uint64_t stride_;
  WindowOrder::Group group_;  // none yet: end() is 0
  bool small_lanes_ = false;
  std::vector<Permutation> lanes_;  // of the group; made when first needed
  std::vector<uint8_t> lane_made_;
  std::vector<uint8_t> tables_;    // small lanes: all their permutations, one after another
  std::vector<uint64_t> extents_;  // of the group, where each is likely to be needed several times
};

}  // namespace millrace
