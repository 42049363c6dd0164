#include "pipeline/explain.h"

#include <algorithm>
#include <unordered_set>

#include "base/rng.h"
#include "pipeline/engine.h"
#include "pipeline/fetch_run.h"

namespace millrace {

namespace {

/// Goes through the epoch as the engine and the fetcher do, with memory that is always free.
class DryRun {
 public:
  DryRun(const LoaderPlan& loader, const Plan& plan, uint64_t consumed)
      : source_(loader.source),
        batching_(loader.batching),
        options_(FetchOptions(loader)),
        sizes_(options_, source_.mean_span_bytes()),
        plan_(plan),
        consumed_(consumed) {}

  const Fetcher::Sizes& sizes() const { return sizes_; }

  absl::StatusOr<LoaderExplanation::Fetches> Run(uint64_t rank_samples, uint64_t limit) {
    Fetcher::Horizon horizon;
    horizon.plan = &plan_;
    horizon.end = batching_.End(consumed_);
    Plan::Cursor cursor(plan_, batching_.At(consumed_, 0).position, batching_.world);
    const uint64_t walked = std::min(rank_samples, limit);
    for (uint64_t i = 0; i < walked; ++i) {
      horizon.position = cursor.position();
      const Draw draw = cursor.NextDraw();
      if (early_.erase(KeyOf(draw)) > 0) continue;
      RETURN_IF_ERROR(Fetch(draw, horizon));
    }
    // Samples that were taken along beyond the walk are part of what was fetched: so the ratio is that of the epoch.
    const double scale = fetched_ > 0 ? static_cast<double>(rank_samples) / static_cast<double>(fetched_) : 0;
    found_.readers = fetched_ > 0 ? static_cast<double>(covered_) / static_cast<double>(fetched_) : 1;
    found_.estimated = walked < rank_samples;
    if (found_.estimated) {
      for (uint64_t* count : {&found_.requests, &found_.bytes, &found_.sample_bytes}) {
        *count = static_cast<uint64_t>(static_cast<double>(*count) * scale);
      }
    }
    RETURN_IF_ERROR(Repeats());
    return found_;
  }

 private:
  /// Draws as one number; that two come to be equal is too unlikely to matter here.
  static uint64_t KeyOf(const Draw& draw) { return draw.turn == 0 ? draw.item : HashKey(draw.turn, {draw.item}); }

  absl::Status Fetch(const Draw& draw, const Fetcher::Horizon& horizon) {
    const auto [number, rank] = source_.Find(draw.item);
    const Subset& part = source_.parts()[number];
    const uint64_t first = source_.FirstOf(number);
    const uint64_t extent = options_.extents[number];
    ASSIGN_OR_RETURN(const FetchRun run,
                     RunAround(part.index(), part.selection.get(), extent, rank, sizes_.max_run, [&](uint64_t other) {
                       const Draw neighbour{first + other, draw.turn};
                       return Fetcher::TakesAlong(plan_.Where(neighbour), horizon, options_, sizes_) &&
                              !early_.contains(KeyOf(neighbour));
                     }));
    ++found_.requests;
    found_.bytes += run.range().length;
    fetched_ += run.parts.size();
    const uint64_t first_of_extent = rank - rank % extent;
    if (extents_.insert(KeyOf({first + first_of_extent, draw.turn})).second) {
      covered_ += plan_.invertible() ? std::min(extent, part.size() - first_of_extent) : 1;
    }
    for (const FetchRun::Part& fetched : run.parts) {
      found_.sample_bytes += fetched.span.length;
      if (fetched.rank != rank) early_.insert(KeyOf({first + fetched.rank, draw.turn}));
    }
    return absl::OkStatus();
  }

  /// The slots of the last step that repeat the epoch's first samples are fetched one by one.
  absl::Status Repeats() {
    if (batching_.last != LastBatch::kWrap) return absl::OkStatus();
    const uint64_t steps = batching_.StepsFrom(consumed_);
    const uint64_t last = consumed_ + (steps - 1) * batching_.batch * batching_.world;
    IndexedSample entry;
    for (uint64_t row = batching_.Taken(last); row < batching_.batch; ++row) {
      RETURN_IF_ERROR(source_.Lookup(plan_.At(batching_.At(last, row).position), &entry));
      ++found_.requests;
      found_.bytes += entry.span.length;
      found_.sample_bytes += entry.span.length;
    }
    return absl::OkStatus();
  }

  const Source& source_;
  const Batching batching_;
  const Fetcher::Options options_;
  const Fetcher::Sizes sizes_;
  const Plan& plan_;
  const uint64_t consumed_;
  std::unordered_set<uint64_t> early_;    // fetched, and their turn has not come
  std::unordered_set<uint64_t> extents_;  // of which something was fetched
  uint64_t covered_ = 0;                  // samples of these extents, whoever fetches them
  uint64_t fetched_ = 0;                  // samples
  LoaderExplanation::Fetches found_;
};

absl::StatusOr<LoaderExplanation::Sample> Describe(const Source& source, uint64_t position, uint64_t item) {
  IndexedSample entry;
  IndexedObject object;
  const size_t part = source.Find(item).part;
  RETURN_IF_ERROR(source.Lookup(item, &entry));
  RETURN_IF_ERROR(source.parts()[part].index().LookupObject(entry.object, &object));
  return LoaderExplanation::Sample{position, part, source.SampleOf(item), entry.key, object.key, entry.span};
}

/// Positions of this rank from `consumed` to the end of the epoch that are delivered.
uint64_t RankSamples(const Batching& batching, uint64_t consumed) {
  const Batching::Slot first = batching.At(consumed, 0);
  if (first.padding) return 0;
  return (batching.End(consumed) - first.position + batching.world - 1) / batching.world;
}

void DescribeOrder(const Subset& part, LoaderExplanation* out) {
  const OrderPolicy& policy = out->policy;
  const uint64_t size = part.size();
  const double mean = size > 0 ? static_cast<double>(part.total_bytes) / static_cast<double>(size) : 0;
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
  const std::vector<uint64_t> counts = mix.CountsOf(out->start.epoch);
  const std::vector<double> wanted = mix.SharesOf(out->start.epoch);
  for (size_t i = 0; i < mix.parts.size(); ++i) {
    out->parts.push_back({loader.source.parts()[i].dataset->uri(), mix.parts[i].items, wanted[i], counts[i]});
  }
}

}  // namespace

absl::StatusOr<LoaderExplanation> Explain(const Source& source, LoaderOptions options, const ExplainLimits& limits) {
  absl::StatusOr<LoaderPlan> settled = Settle(source, std::move(options));
  if (!settled.ok()) return Annotate(settled.status(), source.uri());
  const LoaderPlan& loader = *settled;
  const Batching& batching = loader.batching;

  LoaderExplanation out;
  out.policy = loader.policy();
  out.start = loader.options.start.value_or(Position{0, 0, loader.fingerprint});
  const uint64_t consumed = out.start.consumed;
  out.samples = batching.samples;
  DescribeOrder(source.parts().front(), &out);
  DescribeMix(loader, &out);
  out.steps = batching.StepsFrom(consumed);
  out.rank_samples = RankSamples(batching, consumed);

  const Plan plan = loader.PlanOf(out.start.epoch);
  DryRun run(loader, plan, consumed);
  out.slots = loader.slots;
  out.slot_bytes = loader.layout.bytes;
  out.fetch_bytes = loader.fetch_bytes;
  out.reserve_bytes = source.max_span_bytes();
  out.reach_positions = run.sizes().reach;
  out.reaches_window = out.reach_positions >= std::min(out.samples, out.policy.extent * out.policy.window);
  ASSIGN_OR_RETURN(out.fetches, run.Run(out.rank_samples, limits.walked_samples));
  for (uint64_t i = 0; i < std::min(limits.first_samples, out.rank_samples); ++i) {
    const uint64_t position = batching.At(consumed, 0).position + i * batching.world;
    ASSIGN_OR_RETURN(LoaderExplanation::Sample sample, Describe(source, position, plan.At(position)));
    out.first.push_back(std::move(sample));
  }
  return out;
}

}  // namespace millrace
