#include "pipeline/explain.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/rng.h"
#include "pipeline/fetch_run.h"
#include "pipeline/walker.h"

namespace millrace {

namespace {

/// Walks the epoch as the engine and the fetcher do, with memory that is always free.
class DryRun {
 public:
  DryRun(const LoaderPlan& loader, uint64_t epoch, uint64_t consumed)
      : loader_(loader),
        source_(loader.source),
        options_(FetchOptions(loader)),
        sizes_(options_, source_),
        groups_(options_.group_bytes),
        order_(loader, epoch),
        consumed_(consumed) {}

  const Fetcher::Sizes& sizes() const { return sizes_; }

  /// Walks until `limit` items of their own were walked; the first `first_items` of them are listed.
  absl::Status Run(uint64_t limit, uint64_t first_items) {
    for (uint64_t at = consumed_; loader_.StepsFrom(at) > 0; at = loader_.After(at)) {
      const EpochOrder::Step step = order_.StepAt(at);
      for (uint64_t row = 0; row < step.rows; ++row) {
        const EpochOrder::Row walked = order_.RowAt(at, row);
        if (walked.counts && walked_++ >= limit) {
          cut_ = true;
          return absl::OkStatus();
        }
        if (walked.counts && first_.size() < first_items) first_.push_back(walked);
        const Fetcher::Horizon horizon{.order = &order_,
                                       .consumed = at,
                                       .turn = walked.turn,
                                       .alone = !walked.counts,
                                       .first_step = at == consumed_,
                                       .rows = step.rows};
        RETURN_IF_ERROR(Walk(walked, horizon));
      }
    }
    return absl::OkStatus();
  }

  const std::vector<EpochOrder::Row>& first() const { return first_; }

  LoaderExplanation::Fetches Found(uint64_t rank_items) const {
    LoaderExplanation::Fetches found = found_;
    found.readers = items_ > 0 ? static_cast<double>(covered_) / static_cast<double>(items_) : 1;
    found.estimated = cut_;
    if (!cut_) return found;
    // Samples that were taken along beyond the walk are part of the fetched ones: so the ratio is that of the epoch.
    const auto scaled = [](uint64_t count, uint64_t from, uint64_t to) {
      return from > 0 ? static_cast<uint64_t>(static_cast<double>(count) * static_cast<double>(to) /
                                              static_cast<double>(from))
                      : 0;
    };
    found.bytes = scaled(found.bytes, items_, rank_items);
    found.sample_bytes = scaled(found.sample_bytes, items_, rank_items);
    // The first step's runs are short ones, and come once.
    const uint64_t rest = rank_items > first_items_ ? rank_items - first_items_ : 0;
    found.requests = first_requests_ + scaled(found.requests - first_requests_, items_ - first_items_, rest);
    return found;
  }

 private:
  /// Returns the draw as one number; equal numbers of two draws are too unlikely to matter here.
  static uint64_t KeyOf(const Draw& draw) { return draw.turn == 0 ? draw.item : HashKey(draw.turn, {draw.item}); }

  absl::StatusOr<std::vector<bool>*> AskedOf(const Draw& draw) {
    const auto [found, is_new] = asked_.try_emplace(KeyOf(draw));
    if (is_new && source_.tokens() == nullptr) found->second.resize(1);
    if (is_new && source_.tokens() != nullptr) {
      const auto [part, rank] = source_.Find(draw.item);
      ASSIGN_OR_RETURN(const std::shared_ptr<const RowGroup> group, groups_.Get(*source_.rows()[part], part, rank));
      found->second.resize(group->Row(rank - group->first_row).size());
    }
    return &found->second;
  }

  absl::Status Walk(const EpochOrder::Row& row, const Fetcher::Horizon& horizon) {
    ASSIGN_OR_RETURN(const std::vector<bool>* const asked, AskedOf(row.draw));
    for (;;) {
      const auto next = std::find(asked->begin(), asked->end(), false);
      if (next == asked->end()) break;
      RETURN_IF_ERROR(Fetch({row.draw, static_cast<uint32_t>(next - asked->begin())}, horizon));
    }
    asked_.erase(KeyOf(row.draw));
    return absl::OkStatus();
  }

  absl::Status Fetch(const Fetcher::Wanted& wanted, const Fetcher::Horizon& horizon) {
    const auto asked = [this](const Fetcher::Wanted& other) {
      const auto found = asked_.find(KeyOf(other.draw));
      return found != asked_.end() && found->second[other.piece];
    };
    ASSIGN_OR_RETURN(const FetchRun run,
                     Fetcher::Neighbours(source_, groups_, options_, sizes_, wanted, horizon, asked));
    const uint64_t first = source_.FirstOf(run.part);
    const uint64_t turn = wanted.draw.turn;
    ++found_.requests;
    if (horizon.first_step) ++first_requests_;
    found_.bytes += run.range().length;
    const auto ask = [&](const FetchRun::Unit& unit) -> absl::Status {
      if (!horizon.alone && unit.piece == 0) {
        ++items_;
        if (horizon.first_step) ++first_items_;
      }
      ASSIGN_OR_RETURN(std::vector<bool>* const of_item, AskedOf({first + unit.rank, turn}));
      (*of_item)[unit.piece] = true;
      return absl::OkStatus();
    };
    for (const FetchRun::Part& fetched : run.parts) {
      found_.sample_bytes += fetched.span.length;
      RETURN_IF_ERROR(ask(fetched));
      for (const FetchRun::Unit& other : fetched.others) RETURN_IF_ERROR(ask(other));
    }
    if (horizon.alone) return absl::OkStatus();
    const uint64_t extent = options_.extents[run.part];
    const uint64_t rank = wanted.draw.item - first;
    const uint64_t first_of_extent = rank - rank % extent;
    if (extents_.insert(KeyOf({first + first_of_extent, turn})).second) {
      covered_ += order_.invertible() ? std::min(extent, source_.SizeOf(run.part) - first_of_extent) : 1;
    }
    return absl::OkStatus();
  }

  const LoaderPlan& loader_;
  const Source& source_;
  const Fetcher::Options options_;
  const Fetcher::Sizes sizes_;
  RowGroups groups_;
  EpochOrder order_;
  const uint64_t consumed_;
  std::vector<EpochOrder::Row> first_;
  uint64_t walked_ = 0;
  bool cut_ = false;
  std::unordered_map<uint64_t, std::vector<bool>> asked_;  // pieces of items whose turn has not passed
  std::unordered_set<uint64_t> extents_;                   // extents with fetched items
  uint64_t covered_ = 0;                                   // items of these extents, fetched by any rank
  uint64_t items_ = 0;                                     // fetched
  uint64_t first_items_ = 0;                               // of them, by the first step
  uint64_t first_requests_ = 0;                            // by the first step
  LoaderExplanation::Fetches found_;
};

absl::StatusOr<LoaderExplanation::Sample> Describe(const Source& source, const EpochOrder::Row& row) {
  IndexedSample entry;
  IndexedObject object;
  const auto [part, rank] = source.Find(row.draw.item);
  const Subset& subset = source.parts()[part];
  LoaderExplanation::Sample found{.position = row.position, .part = part};
  if (source.tokens() == nullptr) {
    RETURN_IF_ERROR(source.Lookup(row.draw.item, &entry));
    found.sample = source.SampleOf(row.draw.item);
    found.span = entry.span;
  } else {
    const TokenRows& rows = *source.rows()[part];
    ASSIGN_OR_RETURN(const RowGroup group, rows.ReadGroup(rank / rows.table().group()));
    const auto pieces = group.Row(rank - group.first_row);
    found.pieces = pieces.size();
    for (const Segment& piece : pieces) found.tokens += piece.length;
    ASSIGN_OR_RETURN(const TokenRows::Place place, rows.Find(pieces.front(), &entry));
    found.sample = place.sample;
    found.span = place.span;
  }
  RETURN_IF_ERROR(subset.index().LookupObject(entry.object, &object));
  found.key = entry.key;
  found.object = object.key;
  return found;
}

/// Counts rows of this rank's batches that hold items of their own, from `consumed` to the end of the epoch.
uint64_t RankSamples(const LoaderPlan& loader, uint64_t epoch, uint64_t consumed) {
  if (loader.bucketed()) {
    const EpochOrder order(loader, epoch);
    uint64_t samples = 0;
    for (uint64_t at = consumed; loader.StepsFrom(at) > 0; at = loader.After(at)) samples += order.StepAt(at).taken;
    return samples;
  }
  const Batching& batching = loader.batching;
  const Batching::Slot first = batching.At(consumed, 0);
  if (first.padding) return 0;
  return (batching.End(consumed) - first.position + batching.world - 1) / batching.world;
}

void DescribeOrder(const Source& source, LoaderExplanation* out) {
  const OrderPolicy& policy = out->policy;
  const Subset& part = source.parts().front();
  const uint64_t size = source.SizeOf(0);
  double mean = size > 0 ? static_cast<double>(part.total_bytes) / static_cast<double>(size) : 0;
  if (source.tokens() != nullptr) mean = source.MeanItemBytesOf(0);
  const bool windowed = policy.shuffle == Shuffle::kWindow;
  out->extents = (size + policy.extent - 1) / policy.extent;
  out->windows = windowed ? (out->extents + policy.window - 1) / policy.window : 1;
  out->extent_bytes = mean * static_cast<double>(std::min(policy.extent, size));
  const uint64_t window_samples = windowed ? policy.extent * policy.window : size;
  out->window_bytes = mean * static_cast<double>(std::min(window_samples, size));
}

void DescribeMix(const LoaderPlan& loader, LoaderExplanation* out) {
  if (!loader.mix) return;
  const Mix& mix = *loader.mix;
  out->draws = mix.draws;
  out->fresh_passes = mix.fresh_passes;
  const std::vector<uint64_t> counts = mix.CountsOf(loader.options.seed, out->start.epoch);
  const std::vector<double> wanted = mix.SharesOf(out->start.epoch);
  for (size_t i = 0; i < mix.parts.size(); ++i) {
    const Subset& part = loader.source.parts()[i];
    out->parts.push_back({part.dataset->uri(), part.class_name, mix.parts[i].items, wanted[i], counts[i]});
  }
}

}  // namespace

std::vector<LoaderExplanation::Rows> DescribeRows(const Source& source) {
  std::vector<LoaderExplanation::Rows> found;
  for (const std::shared_ptr<const TokenRows>& rows : source.rows()) {
    const RowTable& table = rows->table();
    found.push_back(
        {.length = table.length(), .counts = table.counts(), .documents = table.samples(), .uri = rows->uri()});
  }
  return found;
}

double PaddingOf(const std::vector<LoaderExplanation::Rows>& rows) {
  double places = 0;
  double tokens = 0;
  for (const LoaderExplanation::Rows& each : rows) {
    places += static_cast<double>(each.counts.rows) * static_cast<double>(each.length);
    tokens += static_cast<double>(each.counts.tokens);
  }
  return places > 0 ? 1 - tokens / places : 0;
}

absl::StatusOr<LoaderExplanation> Explain(const Source& all, LoaderOptions options, const ExplainLimits& limits) {
  absl::StatusOr<LoaderPlan> settled = Settle(all, std::move(options));
  if (!settled.ok()) return Annotate(settled.status(), all.uri());
  const LoaderPlan& loader = *settled;
  const Source& source = loader.source;

  LoaderExplanation out;
  out.left_out = loader.left_out;
  out.policy = loader.policy();
  out.start = loader.options.start.value_or(Position{0, 0, loader.fingerprint});
  const uint64_t consumed = out.start.consumed;
  out.samples = loader.bucketed() ? source.size() : loader.batching.samples;
  DescribeOrder(source, &out);
  DescribeMix(loader, &out);
  out.rows = DescribeRows(source);
  out.padding = PaddingOf(out.rows);
  for (size_t i = 0; i < out.rows.size(); ++i) {
    out.rows[i].batch = loader.layouts[loader.bucketed() ? i : 0].batch();
    if (loader.bucketed()) out.rows[i].steps = loader.buckets[i].StepsFrom(0);
  }
  out.steps = loader.StepsFrom(consumed);
  out.rank_samples = RankSamples(loader, out.start.epoch, consumed);

  DryRun run(loader, out.start.epoch, consumed);
  out.slots = loader.slots;
  out.slot_bytes = loader.slot_bytes;
  out.fetch_bytes = loader.fetch_bytes;
  out.reserve_bytes = source.max_item_bytes();
  out.account_bytes = loader.account_bytes - out.reserve_bytes;
  out.unused_bytes = loader.unused_bytes;
  out.reach_positions = run.sizes().reach;
  out.reaches_window = out.reach_positions >= std::min(out.samples, out.policy.extent * out.policy.window);
  RETURN_IF_ERROR(run.Run(limits.walked_samples, limits.first_samples));
  out.fetches = run.Found(out.rank_samples);
  for (const EpochOrder::Row& row : run.first()) {
    ASSIGN_OR_RETURN(LoaderExplanation::Sample sample, Describe(source, row));
    out.first.push_back(std::move(sample));
  }
  return out;
}

}  // namespace millrace
