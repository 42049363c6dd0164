#pragma once

#include <cstdint>
#include <map>

#include "cache/planned_read.h"
#include "pipeline/epoch_order.h"
#include "pipeline/fetch_run.h"
#include "pipeline/loader_plan.h"

namespace millrace {

/// When what is fetched comes again, by the plan's inverse, across the end of the epoch and for all ranks of this
/// machine (LoaderOptions::local_ranks): positions of the plan count on from epoch to epoch, also beyond the last one,
/// as a later run is likely to begin anew. Of long runs some samples are looked up, so that the next use may be told a
/// little too late. Not thread-safe; must not outlive the loader's plan.
class NextUse {
 public:
  explicit NextUse(const LoaderPlan& plan);

  /// Of a run that is fetched for the draw at `turn` of `epoch`.
  PlannedRead Of(const FetchRun& run, uint64_t epoch, const Draw& draw, uint64_t turn);

  /// Of a run that is fetched before the loader begins: when it comes first.
  PlannedRead First(const FetchRun& run);

  /// The job of the plan's readers, whatever their ranks.
  static uint32_t JobOf(const LoaderPlan& plan);
  /// Whether the samples of an extent of that part are used at about the same time, so that a cache keeps or removes
  /// them together.
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
