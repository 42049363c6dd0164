#include "pipeline/next_use.h"

#include <algorithm>

namespace millrace {

namespace {

// Samples of an extent that are looked up: all come in the same window, so that few tell when.
constexpr uint64_t kLookedUp = 16;
// In a mix, an item may be left out of an epoch.
constexpr uint64_t kEpochsAhead = 3;

}  // namespace

NextUse::NextUse(const LoaderPlan& plan) : plan_(plan) {
  const EpochOrder& order = OrderOf(0);
  turns_ = std::max<uint64_t>(1, order.turns());
  invertible_ = order.invertible();
}

uint32_t NextUse::JobOf(const LoaderPlan& plan) {
  const auto job = static_cast<uint32_t>(plan.fingerprint ^ (plan.fingerprint >> 32));
  return std::max(job, UseHints::kUnplanned + 1);
}

bool NextUse::Together(const LoaderPlan& plan, size_t part) {
  return plan.policies[part].shuffle != Shuffle::kGlobal;
}

const EpochOrder& NextUse::OrderOf(uint64_t epoch) {
  const auto found = orders_.find(epoch);
  if (found != orders_.end()) return found->second;
  while (orders_.size() > kEpochsAhead) orders_.erase(orders_.begin());
  return orders_.try_emplace(epoch, plan_, epoch).first->second;
}

// The next position of the item after this draw of it.
uint64_t NextUse::After(uint64_t epoch, const Draw& draw) {
  // Of draws that are independent nothing is known but how often they come.
  if (!invertible_) return (epoch + 1) * turns_;
  if (plan_.mix) {
    const std::optional<uint64_t> turn = OrderOf(epoch).AnyTurnOf({draw.item, draw.turn + 1});
    if (turn) return epoch * turns_ + *turn;
  }
  for (uint64_t later = epoch + 1; later <= epoch + (plan_.mix ? kEpochsAhead : 1); ++later) {
    const std::optional<uint64_t> turn = OrderOf(later).AnyTurnOf({draw.item, 0});
    if (turn) return later * turns_ + *turn;
  }
  return UseHints::kNever;
}

// Of all of the extent: what other runs are still to fetch of it in this epoch counts as well.
uint64_t NextUse::OfExtent(const FetchRun& run, uint64_t epoch, const Draw& draw, uint64_t turn) {
  const uint64_t first = plan_.source.FirstOf(run.part);
  const uint64_t extent = plan_.policies[run.part].extent;
  const uint64_t begin = run.parts.front().rank / extent * extent;
  const uint64_t end = std::min(begin + extent, plan_.source.SizeOf(run.part));
  const uint64_t stride = std::max<uint64_t>(1, (end - begin) / kLookedUp);
  const auto in_run = [&](uint64_t rank) {
    return std::any_of(run.parts.begin(), run.parts.end(), [&](const FetchRun::Part& part) {
      return part.rank == rank || std::any_of(part.others.begin(), part.others.end(),
                                              [&](const FetchRun::Unit& unit) { return unit.rank == rank; });
    });
  };
  uint64_t around = UseHints::kNever;
  for (uint64_t rank = begin; rank < end; rank += stride) {
    const Draw other{first + rank, draw.turn};
    if (invertible_ && !in_run(rank)) {
      const std::optional<uint64_t> now = OrderOf(epoch).AnyTurnOf(other);
      if (now && *now > turn) around = std::min(around, epoch * turns_ + *now);
    }
    around = std::min(around, After(epoch, other));
  }
  return around;
}

// Of what the run fetches itself.
uint64_t NextUse::OfRun(const FetchRun& run, uint64_t epoch, const Draw& draw) {
  const uint64_t first = plan_.source.FirstOf(run.part);
  const size_t stride = std::max<size_t>(1, run.parts.size() / kLookedUp);
  uint64_t next = UseHints::kNever;
  for (size_t i = 0; i < run.parts.size(); i += stride)
    next = std::min(next, After(epoch, {first + run.parts[i].rank, draw.turn}));
  return next;
}

PlannedRead NextUse::Of(const FetchRun& run, uint64_t epoch, const Draw& draw, uint64_t turn) {
  PlannedRead read{.job = JobOf(plan_), .use = epoch * turns_ + turn, .period = turns_, .spans = {}};
  if (Together(plan_, run.part)) {
    const uint64_t next = OfRun(run, epoch, draw);
    read.spans.push_back({run.range(), next, std::min(next, OfExtent(run, epoch, draw, turn))});
    return read;
  }
  const uint64_t first = plan_.source.FirstOf(run.part);
  for (const FetchRun::Part& part : run.parts) {
    if (part.span.length == 0) continue;
    uint64_t next = After(epoch, {first + part.rank, draw.turn});
    for (const FetchRun::Unit& unit : part.others) next = std::min(next, After(epoch, {first + unit.rank, draw.turn}));
    read.spans.push_back({part.span, next, next});
  }
  return read;
}

PlannedRead NextUse::First(const FetchRun& run) {
  PlannedRead read{.job = JobOf(plan_), .use = 0, .period = turns_, .spans = {}};
  const uint64_t first = plan_.source.FirstOf(run.part);
  uint64_t earliest = UseHints::kNever;
  for (const FetchRun::Part& part : run.parts) {
    std::optional<uint64_t> turn = 0;
    if (invertible_) turn = OrderOf(0).AnyTurnOf({first + part.rank, 0});
    const uint64_t use = turn ? *turn : After(0, {first + part.rank, 0});
    if (part.span.length > 0) read.spans.push_back({part.span, use, use});
    earliest = std::min(earliest, use);
  }
  if (Together(plan_, run.part)) read.spans = {{run.range(), earliest, earliest}};
  return read;
}

}  // namespace millrace
