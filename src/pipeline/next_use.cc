#include "pipeline/next_use.h"

#include <algorithm>

namespace millrace {

namespace {

// This is the number of samples of a run, and of the rest of its extent, that are looked up. All come in the same
// window, so a few are enough.
constexpr uint64_t kLookedUp = 64;
constexpr size_t kOrders = 4;  // that are kept
constexpr int kMostOthers = 16;

// Returns the ranks in ascending order.
std::vector<uint64_t> RanksOf(const FetchRun& run) {
  std::vector<uint64_t> ranks;
  for (const FetchRun::Part& part : run.parts) {
    ranks.push_back(part.rank);
    for (const FetchRun::Unit& unit : part.others) ranks.push_back(unit.rank);
  }
  if (!std::is_sorted(ranks.begin(), ranks.end())) std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());  // of a row, several pieces
  return ranks;
}

}  // namespace

NextUse::NextUse(const LoaderPlan& plan) : plan_(plan) {
  const EpochOrder& order = OrderOf(0);
  turns_ = std::max<uint64_t>(1, order.turns());
  invertible_ = order.invertible();
}

uint32_t NextUse::JobOf(const LoaderPlan& plan) {
  const auto job = static_cast<uint32_t>(plan.fingerprint ^ (plan.fingerprint >> 32));
  return std::max(job, UseHints::kPinned + 1);
}

bool NextUse::Together(const LoaderPlan& plan, size_t part) {
  return plan.policies[part].shuffle != Shuffle::kGlobal;
}

const EpochOrder& NextUse::OrderOf(uint64_t epoch) {
  const auto found = orders_.find(epoch);
  if (found != orders_.end()) return found->second;
  while (orders_.size() >= kOrders) orders_.erase(orders_.begin());
  return orders_.try_emplace(epoch, plan_, epoch).first->second;
}

// Returns the first turn of the item in that epoch, from `from` on, that is of a rank of this machine.
std::optional<uint64_t> NextUse::NextHere(uint64_t epoch, uint64_t item, uint64_t from) {
  const EpochOrder& order = OrderOf(epoch);
  const LoaderOptions& options = plan_.options;
  std::optional<uint64_t> turn = order.NextTurnOf(item, from);
  // In a mix, an item may come often. After `kMostOthers` turns of other machines, the last one is a good estimate.
  for (int others = 0; turn && options.local_ranks > 0 && others < kMostOthers; ++others) {
    if (*turn % options.world / options.local_ranks == options.rank / options.local_ranks) break;
    const std::optional<uint64_t> next = order.NextTurnOf(item, *turn + 1);
    if (!next) return std::nullopt;
    turn = next;
  }
  return turn;
}

// Returns the next position of the item, from that turn of the epoch on.
uint64_t NextUse::From(uint64_t epoch, uint64_t item, uint64_t from) {
  // If draws are independent, only their frequency is known.
  if (!invertible_) return (epoch + 1) * turns_;
  if (from < turns_) {
    if (const std::optional<uint64_t> turn = NextHere(epoch, item, from)) return epoch * turns_ + *turn;
  }
  if (const std::optional<uint64_t> turn = NextHere(epoch + 1, item, 0)) return (epoch + 1) * turns_ + *turn;
  // The item goes to another machine, or, in a mix, is left out of that epoch: it may come in the one after. A cache
  // takes more than two epochs for a number of an earlier run.
  return (epoch + 2) * turns_;
}

// Returns the next position of the item after this draw of it, which is read at `turn` or taken along then.
uint64_t NextUse::After(uint64_t epoch, const Draw& draw, uint64_t turn) {
  if (!plan_.mix || !invertible_) return From(epoch, draw.item, turns_);
  return From(epoch, draw.item, OrderOf(epoch).AnyTurnOf(draw).value_or(turn) + 1);
}

// Returns the next use of the bytes of the run and of the whole extent. Between the parts of the run there may be
// others that are still to be read.
PlannedRead::Span NextUse::OfExtent(const FetchRun& run, uint64_t epoch, const Draw& draw, uint64_t turn) {
  const uint64_t first = plan_.source.FirstOf(run.part);
  const std::vector<uint64_t> ranks = RanksOf(run);
  PlannedRead::Span span{.range = run.range()};
  const size_t stride = std::max<size_t>(1, ranks.size() / kLookedUp);
  for (size_t i = 0; i < ranks.size(); i += stride)
    span.next_use = std::min(span.next_use, After(epoch, {first + ranks[i], draw.turn}, turn));
  span.around_use = span.next_use;
  const uint64_t extent = plan_.policies[run.part].extent;
  const uint64_t begin = ranks.front() / extent * extent;
  const uint64_t end = std::min(begin + extent, plan_.source.SizeOf(run.part));
  if (end - begin <= ranks.size()) return span;
  const uint64_t stride_around = std::max<uint64_t>(1, (end - begin - ranks.size()) / kLookedUp);
  for (uint64_t rank = begin; rank < end; rank += stride_around) {
    if (std::binary_search(ranks.begin(), ranks.end(), rank)) continue;
    const uint64_t next = From(epoch, first + rank, turn + 1);
    span.around_use = std::min(span.around_use, next);
    if (ranks.front() < rank && rank < ranks.back()) span.next_use = std::min(span.next_use, next);
  }
  return span;
}

PlannedRead NextUse::NewRead(uint64_t use) const {
  PlannedRead read{.job = JobOf(plan_), .use = use, .period = turns_};
  read.pinned = plan_.options.pin;
  return read;
}

PlannedRead NextUse::Of(const FetchRun& run, uint64_t epoch, const Draw& draw, uint64_t turn) {
  PlannedRead read = NewRead(epoch * turns_ + turn);
  if (Together(plan_, run.part)) {
    read.spans.push_back(OfExtent(run, epoch, draw, turn));
    return read;
  }
  const bool rows = plan_.source.tokens() != nullptr;
  read.shared = rows;  // several rows may have pieces of one sample
  const uint64_t first = plan_.source.FirstOf(run.part);
  for (const FetchRun::Part& part : run.parts) {
    if (part.span.length == 0) continue;
    uint64_t next = After(epoch, {first + part.rank, draw.turn}, turn);
    for (const FetchRun::Unit& unit : part.others)
      next = std::min(next, After(epoch, {first + unit.rank, draw.turn}, turn));
    // Not all pieces have checksums, so a row is read as one range, with the bytes between its pieces.
    if (rows && !read.spans.empty()) {
      ByteRange& before = read.spans.back().range;
      before.length = std::max(before.end(), part.span.offset) - before.offset;
    }
    read.spans.push_back({part.span, next, next});
  }
  return read;
}

PlannedRead NextUse::First(const FetchRun& run) {
  PlannedRead read = NewRead(0);
  const uint64_t first = plan_.source.FirstOf(run.part);
  uint64_t earliest = UseHints::kNever;
  for (const FetchRun::Part& part : run.parts) {
    const uint64_t use = invertible_ ? From(0, first + part.rank, 0) : 0;
    if (part.span.length > 0) read.spans.push_back({part.span, use, use});
    earliest = std::min(earliest, use);
  }
  if (Together(plan_, run.part)) read.spans = {{run.range(), earliest, earliest}};
  return read;
}

}  // namespace millrace
