#pragma once

#include <cstdint>
#include <map>

#include "cache/planned_read.h"
#include "pipeline/epoch_order.h"
#include "pipeline/fetch_run.h"
#include "pipeline/loader_plan.h"

namespace millrace {

/// Computes when fetched bytes are used again, by the plan's inverse. For example, a sample at position 10 of 1,000 in
/// this epoch and 700 in the next one is used again at position 1,700. It looks across the end of the epoch and at all
/// ranks of this machine (LoaderOptions::local_ranks). Positions of the plan continue from epoch to epoch, also beyond
/// the last one, since a later run is likely to begin again. For long runs only some samples are looked up, so that the
/// next use may be reported a little too late. Not thread-safe; must not outlive the loader's plan.
class NextUse {
 public:
  explicit NextUse(const LoaderPlan& plan);

  /// Returns the plan of a run that is fetched for the draw at `turn` of `epoch`.
  PlannedRead Of(const FetchRun& run, uint64_t epoch, const Draw& draw, uint64_t turn);

  /// Returns the plan of a run that is fetched before the loader begins: when it comes first.
  PlannedRead First(const FetchRun& run);

  /// Returns the job of the plan's readers, whatever their ranks.
  static uint32_t JobOf(const LoaderPlan& plan);
  /// Returns true if the samples of an extent of that part are used at about the same time. A cache then keeps or
  /// removes them together.
  static bool Together(const LoaderPlan& plan, size_t part);

 private:
  PlannedRead NewRead(uint64_t use) const;
  std::optional<uint64_t> NextHere(uint64_t epoch, uint64_t item, uint64_t from);
  const EpochOrder& OrderOf(uint64_t epoch);
  uint64_t From(uint64_t epoch, uint64_t item, uint64_t from);
  uint64_t After(uint64_t epoch, const Draw& draw, uint64_t turn);
  PlannedRead::Span OfExtent(const FetchRun& run, uint64_t epoch, const Draw& draw, uint64_t turn);

  const LoaderPlan& plan_;
  std::map<uint64_t, EpochOrder> orders_;  // of the epochs that were asked for last
  uint64_t turns_ = 1;                     // of an epoch
  bool invertible_ = true;
};

}  // namespace millrace
