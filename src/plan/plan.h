#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plan/order_policy.h"

namespace millrace {

struct Mix;
class Selection;
class WindowReader;

/// Holds the contents of a position of an epoch: an item, and its turn, which distinguishes the occurrences of an item
/// in one epoch. Only a mix has turns other than 0.
struct Draw {
  uint64_t item = 0;
  uint64_t turn = 0;
  friend bool operator==(const Draw&, const Draw&) = default;
};

/// Computes the order of one epoch, as a pure function of (size and policy, or mix; seed; epoch). If there is no mix,
/// it is a bijection between positions and samples, both 0 .. size-1. With a mix, it is one between positions and
/// draws. At and PositionOf are O(1) in time and memory, except for one-window tables that a Cursor keeps. With a mix
/// of n parts, they are O(log n) and O(n). Immutable and thread-safe. docs/plan.md describes the construction.
///
///   const Plan plan(samples, policy, seed, /*epoch=*/0);
///   plan.At(0);  // the first sample of the epoch
///   for (Plan::Cursor cursor(plan, rank, world); !cursor.done();) Use(cursor.Next());  // those of one rank
class Plan {
 public:
  static constexpr uint64_t kMaxSamples = uint64_t{1} << 60;

  /// samples <= kMaxSamples; policy.Check() is ok.
  Plan(uint64_t samples, const OrderPolicy& policy, uint64_t seed, uint64_t epoch);
  /// mix.Check() is ok. Keeps nothing of the mix.
  Plan(const Mix& mix, uint64_t seed, uint64_t epoch);
  ~Plan();
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;

  uint64_t size() const;   // positions
  uint64_t items() const;  // the same, but for a mix
  /// Returns false if every draw is independent of earlier ones (Draws::kReplacement, kIndependent): then positions are
  /// found by a walk through the epoch.
  bool invertible() const;
  Draw DrawAt(uint64_t position) const;                                   // position < size()
  uint64_t At(uint64_t position) const { return DrawAt(position).item; }  // position < size()
  /// Returns the first position of the item in this epoch; size() if it does not come. item < items().
  uint64_t PositionOf(uint64_t item) const;
  /// Returns the first position of the item from position `from` on; size() if it does not come there.
  uint64_t NextPosition(uint64_t item, uint64_t from) const;
  /// Returns the position of a draw; size() if it is not of this epoch or the plan is not invertible.
  uint64_t PositionOf(const Draw& draw) const;
  /// Returns all positions of the item in this epoch, ascending.
  std::vector<uint64_t> Positions(uint64_t item) const;
  uint64_t WindowOf(uint64_t position) const;
  /// Returns the first position of the window after that of `position`; size() in the last one. An order without
  /// windows returns size().
  uint64_t WindowEnd(uint64_t position) const;

  class Reader;

  /// Walks positions `first`, `first + stride`, ... faster than At does. Not thread-safe; must not outlive the Plan.
  /// stride > 0. Memory: up to 8 bytes an extent of a window and 112 a lane; of lanes of up to 256 samples 8, and 1 a
  /// sample.
  class Cursor {
   public:
    Cursor(const Plan& plan, uint64_t first, uint64_t stride = 1);
    ~Cursor();
    Cursor(Cursor&&) noexcept;
    Cursor& operator=(Cursor&&) noexcept;
    bool done() const;
    uint64_t position() const;  // size() when done
    Draw NextDraw();            // what is at position(); then advances. Not when done()
    uint64_t Next() { return NextDraw().item; }

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Reads the samples of ascending positions, faster than At: for callers that go forward in steps of any size. It is
/// only for a plan without a mix. Not thread-safe; must not outlive the plan's state, which moves with it. It takes as
/// much memory as a Cursor, and for a subset up to 4 MiB.
class Plan::Reader {
 public:
  /// `stride` is the usual distance between positions; it only decides what is worth a table. With a subset of
  /// plan.size() members, which must outlive the reader, these take the place of samples.
  Reader(const Plan& plan, uint64_t stride, const Selection* subset = nullptr);
  ~Reader();
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;

  /// Replaces each position by its sample.
  void Map(std::span<uint64_t> positions);

 private:
  const Plan::Impl* plan_;
  const Selection* subset_;
  std::unique_ptr<WindowReader> windows_;
};

}  // namespace millrace
