#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plan/interleave.h"
#include "plan/mix.h"
#include "plan/plan.h"

namespace millrace {

/// This is a stretch of an epoch whose weights do not change.
struct MixPhase {
  uint64_t first = 0;  // position
  uint64_t length = 0;
  std::span<const uint64_t> weights;  // of the mix
  uint64_t turn = 0;                  // its number in the run, where stages that begin with an epoch count as well

  /// Returns the count of each part in it.
  std::vector<uint64_t> CountsOf(uint64_t seed) const;
};
std::vector<MixPhase> PhasesOf(const Mix& mix, uint64_t epoch);

/// This is the order of one epoch of a mix (docs/plan.md). Immutable and thread-safe.
class MixOrder {
 public:
  /// mix.Check() is ok.
  MixOrder(const Mix& mix, uint64_t seed, uint64_t epoch);

  uint64_t size() const { return length_; }
  Draw At(uint64_t position) const;
  /// Returns size() if the draw is not of this epoch, or if draws have no inverse.
  uint64_t PositionOf(const Draw& draw) const;
  /// Returns the positions of all draws of the item, ascending. If draws have no inverse, this walks through the epoch.
  std::vector<uint64_t> Positions(uint64_t item) const;
  /// Returns the first of these from `from` on; size() if there is none.
  uint64_t NextPosition(uint64_t item, uint64_t from) const;
  bool invertible() const { return draws_ == Draws::kExact; }

  // These are the parts of At, for MixReader.
  struct Phase {
    uint64_t first = 0;  // position
    Interleave interleave;
    std::vector<uint64_t> before;   // elements of each part in the phases before, in this epoch
    std::vector<uint64_t> weights;  // kIndependent: their running sums
    uint64_t end() const { return first + interleave.size(); }
  };
  struct Place {
    uint64_t pass = 0;
    uint64_t position = 0;  // in it
  };
  const Phase& PhaseOf(uint64_t position) const;
  size_t parts() const { return parts_.size(); }
  uint64_t FirstItemOf(size_t part) const { return first_items_[part]; }
  uint64_t ItemsOf(size_t part) const { return parts_[part].items; }
  /// Returns the place of element `number` (of the epoch) of the part in its part's passes.
  Place PlaceOf(size_t part, uint64_t number) const;
  Plan PlanOf(size_t part, uint64_t pass) const;

 private:
  struct Base {
    Place start;            // of the epoch
    uint64_t elements = 0;  // of the epoch
  };
  Draw DrawFreely(const Phase& phase, uint64_t position) const;
  uint64_t LeastBeforeCycle(size_t part, uint64_t position) const;
  size_t PartOf(uint64_t item) const;

  std::vector<Mix::Part> parts_;
  std::vector<uint64_t> first_items_;  // and one more
  std::vector<Base> bases_;
  std::vector<Phase> phases_;
  std::vector<Plan> first_plans_;  // of each part's first pass in this epoch, where the parts are few
  uint64_t length_;
  uint64_t seed_;
  uint64_t epoch_;
  Draws draws_;
};

/// MixOrder::At for a reader that goes forward: works out the cycles it meets as wholes. Not thread-safe; must not
/// outlive the order. Memory: 40 bytes a place of a cycle, and a Plan::Reader for each of up to kReaders parts.
class MixReader {
 public:
  static constexpr size_t kReaders = 1024;
  /// A pass gets a Plan::Reader after so many positions. The reader's tables cost as much as looking up some tens one
  /// by one, and only a few passes use that many in a cycle. The tables of a thousand parts would keep the first item
  /// waiting.
  static constexpr uint64_t kBeforeReader = 32;
  static constexpr uint64_t kNewReaders = 64;

  MixReader(const MixOrder& order, uint64_t first, uint64_t stride);

  Draw Next();  // the draw at first, first + stride ...; below order.size()

 private:
  struct PassReader {
    uint64_t pass;
    Plan plan;
    uint64_t mapped = 0;  // positions
    std::optional<Plan::Reader> reader = std::nullopt;
  };

  void Fill();
  void FillFromCycle(const MixOrder::Phase& phase, const Interleave::Cycle& cycle);
  void MapRun(const MixOrder::Phase& phase, const Interleave::Run& run, const uint32_t* slots);
  void MapPass(size_t part, uint64_t pass);

  const MixOrder* order_;
  uint64_t ahead_;  // position of the next draw that is not in the block
  uint64_t stride_;
  std::vector<Draw> block_;
  size_t used_ = 0;

  // These are of the current cycle.
  std::vector<uint64_t> offsets_;
  std::vector<uint32_t> slots_;  // by place in the unshuffled sequence: 1 + the place in the block, 0 for none
  std::vector<Interleave::Run> runs_;
  uint64_t new_readers_ = 0;
  std::vector<uint64_t> positions_;                   // in a pass, ascending
  std::vector<uint32_t> outs_;                        // where they go in the block
  std::vector<std::unique_ptr<PassReader>> readers_;  // by part
};

}  // namespace millrace
