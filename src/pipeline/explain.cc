#include "pipeline/explain.h"

#include <algorithm>
#include <unordered_set>

#include "pipeline/engine.h"
#include "pipeline/fetch_run.h"

namespace millrace {

namespace {

/// Goes through the epoch as the engine and the fetcher do, with memory that is always free.
class DryRun {
 public:
  DryRun(const Index& index, const LoaderPlan& loader, const Plan& plan, uint64_t consumed)
      : index_(index),
        batching_(loader.batching),
        options_(FetchOptions(loader)),
        sizes_(options_, index.mean_span_bytes()),
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
      const uint64_t sample = cursor.Next();
      if (early_.erase(sample) > 0) continue;
      RETURN_IF_ERROR(Fetch(sample, horizon));
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
  absl::Status Fetch(uint64_t sample, const Fetcher::Horizon& horizon) {
    ASSIGN_OR_RETURN(
        const FetchRun run, RunAround(index_, options_.extent, sample, sizes_.max_run, [&](uint64_t other) {
          return Fetcher::TakesAlong(plan_.Where(other), horizon, options_, sizes_) && !early_.contains(other);
        }));
    ++found_.requests;
    found_.bytes += run.range().length;
    fetched_ += run.parts.size();
    const uint64_t extent = sample / options_.extent;
    if (extents_.insert(extent).second) {
      covered_ += std::min(options_.extent, index_.size() - extent * options_.extent);
    }
    for (const FetchRun::Part& part : run.parts) {
      found_.sample_bytes += part.span.length;
      if (part.sample != sample) early_.insert(part.sample);
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
      RETURN_IF_ERROR(index_.Lookup(plan_.At(batching_.At(last, row).position), &entry));
      ++found_.requests;
      found_.bytes += entry.span.length;
      found_.sample_bytes += entry.span.length;
    }
    return absl::OkStatus();
  }

  const Index& index_;
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

absl::StatusOr<LoaderExplanation::Sample> Describe(const Index& index, uint64_t position, uint64_t sample) {
  IndexedSample entry;
  IndexedObject object;
  RETURN_IF_ERROR(index.Lookup(sample, &entry));
  RETURN_IF_ERROR(index.LookupObject(entry.object, &object));
  return LoaderExplanation::Sample{position, sample, entry.key, object.key, entry.span};
}

/// Positions of this rank from `consumed` to the end of the epoch that are delivered.
uint64_t RankSamples(const Batching& batching, uint64_t consumed) {
  const Batching::Slot first = batching.At(consumed, 0);
  if (first.padding) return 0;
  return (batching.End(consumed) - first.position + batching.world - 1) / batching.world;
}

void DescribeOrder(const Index& index, LoaderExplanation* out) {
  const OrderPolicy& policy = out->policy;
  const double mean = index.mean_span_bytes();
  const bool windowed = policy.shuffle == Shuffle::kWindow;
  out->samples = index.size();
  out->extents = (index.size() + policy.extent - 1) / policy.extent;
  out->windows = windowed ? (out->extents + policy.window - 1) / policy.window : 1;
  out->extent_bytes = mean * static_cast<double>(std::min(policy.extent, index.size()));
  const uint64_t window_samples = windowed ? policy.extent * policy.window : index.size();
  out->window_bytes = mean * static_cast<double>(std::min(window_samples, index.size()));
}

}  // namespace

absl::StatusOr<LoaderExplanation> Explain(const Dataset& dataset, LoaderOptions options, const ExplainLimits& limits) {
  const Index& index = dataset.index();
  absl::StatusOr<LoaderPlan> settled = Settle(dataset, std::move(options));
  if (!settled.ok()) return Annotate(settled.status(), dataset.uri());
  const LoaderPlan& loader = *settled;
  const Batching& batching = loader.batching;

  LoaderExplanation out;
  out.policy = loader.policy;
  out.start = loader.options.start.value_or(Position{0, 0, loader.fingerprint});
  const uint64_t consumed = out.start.consumed;
  DescribeOrder(index, &out);
  out.steps = batching.StepsFrom(consumed);
  out.rank_samples = RankSamples(batching, consumed);

  const Plan plan(index.size(), loader.policy, loader.options.seed, out.start.epoch);
  DryRun run(index, loader, plan, consumed);
  out.slots = loader.slots;
  out.slot_bytes = loader.layout.bytes;
  out.fetch_bytes = loader.fetch_bytes;
  out.reserve_bytes = index.max_span_bytes();
  out.reach_positions = run.sizes().reach;
  out.reaches_window = out.reach_positions >= std::min(index.size(), out.policy.extent * out.policy.window);
  ASSIGN_OR_RETURN(out.fetches, run.Run(out.rank_samples, limits.walked_samples));
  for (uint64_t i = 0; i < std::min(limits.first_samples, out.rank_samples); ++i) {
    const uint64_t position = batching.At(consumed, 0).position + i * batching.world;
    ASSIGN_OR_RETURN(LoaderExplanation::Sample sample, Describe(index, position, plan.At(position)));
    out.first.push_back(std::move(sample));
  }
  return out;
}

}  // namespace millrace
