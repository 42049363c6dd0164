#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/divider.h"
#include "plan/permutation.h"
#include "plan/plan.h"
#include "plan/selection.h"

namespace millrace {

/// Computes the windowed shuffle (docs/plan.md). Extents are permuted into slots. Whole rows of `policy.lanes` slots
/// make windows of at most `policy.window` extents. The samples of a window are dealt to lanes, each of which is
/// permuted by itself. Everything is arithmetic on a handful of numbers. Immutable and thread-safe.
class WindowOrder {
 public:
  /// This is a window. Its lanes have as many whole extents each; the samples of the extents that remain are a line, of
  /// which each lane has a share. Position `first + q` belongs to lane q mod lanes().
  struct Window {
    uint64_t number = 0;  // in the epoch
    uint64_t first = 0;   // position
    uint64_t size = 0;    // samples
    unsigned lanes_log2 = 0;
    uint64_t first_slot = 0;
    uint64_t rows = 0;  // whole extents of each lane
    uint64_t line = 0;  // samples that are shared out; they begin with the slot after the rows

    uint64_t lanes() const { return uint64_t{1} << lanes_log2; }
    uint64_t end() const { return first + size; }
    uint64_t first_slot_of_line() const { return first_slot + (rows << lanes_log2); }
    /// Returns the samples of the line that go to the lanes which are `lane` modulo 2^bits, taken together.
    uint64_t Share(uint64_t lane, unsigned bits) const { return (line + (uint64_t{1} << bits) - 1 - lane) >> bits; }
    /// Returns where the lane's share begins in the line. The shares of the even lanes come before those of the odd
    /// ones, and each of the two is divided by the next bit in the same way.
    uint64_t CutOf(uint64_t lane) const;
    struct Cut {
      uint64_t lane = 0;
      uint64_t offset = 0;  // in its share
    };
    /// This is the inverse: it returns whose share has this sample of the line.
    Cut ShareOf(uint64_t offset) const;
  };

  /// samples > 0; policy.Check() is ok.
  WindowOrder(uint64_t samples, const OrderPolicy& policy, uint64_t seed, uint64_t epoch);

  uint64_t At(uint64_t position) const;
  uint64_t PositionOf(uint64_t sample) const;
  Window WindowAt(uint64_t position) const;

  // These are the parts of At, for WindowReader.

  uint64_t SamplesOf(const Window& window, uint64_t lane) const;
  Permutation Lane(const Window& window, uint64_t lane) const;
  struct Place {
    uint64_t slot = 0;  // counted from the first of the window
    uint64_t sample = 0;
  };
  /// Returns the place of sample `index` of the lane, before its permutation; `cut` is window.CutOf(lane).
  Place PlaceOf(const Window& window, uint64_t lane, uint64_t cut, uint64_t index) const;
  /// Replaces each slot of the window, counted from its first, by its extent.
  void MapSlots(const Window& window, std::span<uint64_t> slots) const;
  uint64_t ExtentIn(uint64_t slot) const { return slot < extents_.size() ? extents_.At(slot) : slot; }
  uint64_t extent() const { return extent_.divisor(); }
  /// Returns the window, counted by slots, with which the epoch begins.
  uint64_t start() const { return start_; }

 private:
  uint64_t FirstRow(uint64_t window) const;
  Window WindowWithRow(uint64_t row) const;

  uint64_t samples_;
  uint64_t lane_key_;  // of (seed, epoch)
  Divider extent_;     // samples of an extent
  unsigned lanes_log2_;
  Permutation extents_;  // slot -> extent, of full extents; the short one stays after them
  uint64_t windows_;
  uint64_t larger_;         // windows that have one row more, the first ones
  Divider rows_of_larger_;  // of these
  Divider rows_;            // of the others; 1 where they have none
  uint64_t rows_in_larger_;
  uint64_t start_ = 0;
  uint64_t start_sample_ = 0;  // samples in the slots before that window
};

/// Computes WindowOrder::At for a reader that goes forward: keeps the tables of the window that it is in. It takes up
/// to 8 bytes for each extent of a window. It takes 8 more bytes for each lane, and beside these 1 for each sample, if
/// all lanes have up to Permutation::kSmall samples; otherwise 104 for each lane. A subset takes 8 more for each sample
/// of windows of up to kMembers. Not thread-safe; must not outlive the order.
class WindowReader {
 public:
  static constexpr size_t kBlock = 64;
  static constexpr uint64_t kMembers = uint64_t{1} << 19;

  /// `stride` is the usual distance between positions; it only decides what is worth a table. Where the order is one of
  /// the members of a subset, they take the place of samples.
  WindowReader(const WindowOrder& order, uint64_t stride, const Selection* subset = nullptr)
      : order_(&order), stride_(stride), subset_(subset) {}

  /// Replaces each position by its sample. At most kBlock positions, in ascending order.
  void Map(std::span<uint64_t> positions);

 private:
  static constexpr uint64_t kNotMade = UINT64_MAX;

  void Enter(uint64_t position);
  void MapInWindow(std::span<uint64_t> positions);
  void ReadMembers();
  void MakeLane(uint64_t lane);

  const WindowOrder* order_;
  uint64_t stride_;
  const Selection* subset_;
  WindowOrder::Window window_;  // none yet: end() is 0
  uint64_t largest_lane_ = 0;   // samples; lane 0, the others have one less or as many
  bool large_lanes_ = false;    // all of them, by Permutation::small()
  // There is one for each lane, made when first needed; all lanes have one kind or the other.
  std::vector<uint64_t> cuts_;             // kNotMade before
  std::vector<uint8_t> tables_;            // of their permutations where all are small, largest_lane_ each
  std::vector<Permutation> permutations_;  // else
  std::vector<uint64_t> extents_;          // of the window, where each is likely to be needed several times
  std::vector<uint64_t> members_;          // of these extents, where there is a subset and they are not too many
};

}  // namespace millrace
