#include "pipeline/staged_facts.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "pipeline/stage_opener.h"

namespace millrace {

namespace {

using Clock = std::chrono::steady_clock;

ChosenSizes SizesOf(const LoaderOptions& options) {
  return {
      .extent = options.extent.value_or(0), .window = options.window.value_or(0), .lanes = options.lanes.value_or(0)};
}

absl::Status CheckOptions(const LoaderOptions& options) {
  if (options.mix)
    return absl::InvalidArgumentError(fmt::format("a mix needs the whole index; {}", StagedDataset::kRemedy));
  const Batching batching{.samples = UINT64_MAX,
                          .batch = options.batch,
                          .rank = options.rank,
                          .world = options.world,
                          .last = options.last};
  return batching.Check();
}

}  // namespace

std::shared_ptr<CachedStore> CacheAround(StagedDataset& data, const LoaderOptions& options) {
  if (options.cache == nullptr || data.store().traits().is_memory()) return nullptr;
  return std::make_shared<CachedStore>(data.store(), *options.cache);
}

LoaderOptions StageOptions(const LoaderOptions& staged, uint64_t epoch, uint64_t before) {
  LoaderOptions options = staged;
  options.keyed_by_place = true;
  options.numbered = epoch > 0;
  options.memory_bytes = epoch > 0 ? staged.memory_bytes / 4 * 3 : staged.memory_bytes / 3;
  options.start.reset();
  if (epoch > 0) return options;
  options.epochs = 1;
  options.last = LastBatch::kPad;
  options.rank = (staged.rank + staged.world - before % staged.world) % staged.world;
  return options;
}

absl::StatusOr<LoaderFacts> DescribeStage(const Dataset& dataset, const LoaderOptions& options) {
  absl::StatusOr<LoaderFacts> facts = DescribeLoader(dataset, options);
  const bool has_third = !options.numbered && options.shares == nullptr;
  if (!has_third || !absl::IsResourceExhausted(facts.status())) return facts;
  return Annotate(
      facts.status(),
      fmt::format("a stage has a third of the memory: give three times what it needs, or {}", StagedDataset::kRemedy));
}

absl::Status InLaterStage(const absl::Status& status) {
  return Annotate(status, fmt::format("in a later stage ({})", StagedDataset::kRemedy));
}

absl::StatusOr<Position> SettleStaged(const StagedDataset& data, const LoaderOptions& options) {
  RETURN_IF_ERROR(Annotate(CheckOptions(options), data.uri()));
  const uint64_t fingerprint =
      StagedFingerprint(data.listing_fingerprint(), options.shuffle, SizesOf(options), options.seed);
  if (!options.start) return Position{0, 0, fingerprint, Position::Stage{}};
  const Position& start = *options.start;
  if (!start.stage || start.fingerprint != fingerprint) {
    return absl::FailedPreconditionError(
        fmt::format("{}: the position {} belongs to another order: the listing (names, sizes, ETags), the seed, the "
                    "shuffle or the start are not those of the run that wrote it (here {:016x})",
                    data.uri(), start.ToString(), fingerprint));
  }
  const uint64_t stages = data.StagesOf(options.seed).size();
  const bool misplaced = start.epoch == 0 ? start.stage->number >= stages : start.stage->number > 0;
  if (misplaced || start.stage->before > Plan::kMaxSamples) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: the position {} lies in a stage that does not exist; there are {}", data.uri(), start.ToString(), stages));
  }
  return start;
}

absl::StatusOr<StagedFacts> DescribeStaged(StagedDataset& data, const LoaderOptions& options) {
  const Clock::time_point begin = Clock::now();
  StagedFacts facts;
  ASSIGN_OR_RETURN(facts.start, SettleStaged(data, options));
  const std::shared_ptr<CachedStore> cached = CacheAround(data, options);
  data.ReadThrough(cached);
  const Stages stages = data.StagesOf(options.seed);
  facts.asked = facts.start.epoch > 0 ? stages.size() + 1 : facts.start.stage->number;
  absl::StatusOr<OpenedStage> found = FindStage(data, stages, options, facts.asked);
  // If there are no more samples in stages, the whole data set gives the shapes, which are those of any samples.
  if (found.ok() && found->dataset == nullptr) found = FindStage(data, stages, options, stages.size() + 1);
  data.ReadThrough(nullptr);
  RETURN_IF_ERROR(found.status());
  if (cached != nullptr) facts.cache = cached->report();
  const bool in_stages = found->stage < stages.size();
  ASSIGN_OR_RETURN(const LoaderFacts described,
                   DescribeStage(*found->dataset, StageOptions(options, in_stages ? 0 : 1, 0)));
  facts.shapes = described.shapes;
  facts.stage = found->stage;
  facts.samples = found->dataset->index().size();
  facts.bytes = in_stages ? data.BytesOf(stages.ShardsOf(found->stage)) : data.total_bytes();
  facts.counted = data.counted_samples();
  facts.dataset = std::move(found->dataset);
  facts.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return facts;
}

}  // namespace millrace
