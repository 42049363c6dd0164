#include "pipeline/loader_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/rng.h"
#include "base/size.h"
#include "pipeline/image_samples.h"
#include "pipeline/memory_shares.h"
#include "pipeline/walker.h"

namespace millrace {

namespace {

// The minimum of fetched bytes: with less, they would not cover the latency of any store.
constexpr uint64_t kMinFetchBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxSlots = 65536;
constexpr uint64_t kSharedSlots = 8;      // of a loader that shares its budget, if they fit into a quarter of it
constexpr uint64_t kMaxSmallSlots = 256;  // without images, what is kept of each row beside the slot is most of it
// Keeps every product of sizes below 2^63.
constexpr uint64_t kMaxBatch = uint64_t{1} << 24;
// Bounds sizes that come from an index, so that their sums stay below 2^64.
constexpr uint64_t kMaxCounted = uint64_t{1} << 60;
constexpr uint64_t kMaxTokensOfBatch = uint64_t{1} << 36;
constexpr uint64_t kMaxGroupBytes = uint64_t{16} << 20;
constexpr uint64_t kRowBookkeeping = 256;                // of each row of a batch beside its slot: key, states
constexpr uint64_t kValueBookkeeping = 64;               // of each value of a row beside its bytes
constexpr uint64_t kBucketsDomain = 0x4d522d6275636b73;  // "MR-bucks"

uint64_t FingerprintOf(const LoaderPlan& plan) {
  const Source& source = plan.source;
  const uint64_t seed = plan.options.seed;
  if (!plan.mix && !plan.bucketed())
    return OrderFingerprint(source.FingerprintOf(0), source.size(), plan.policy(), seed);
  std::vector<uint64_t> fingerprints;
  for (size_t part = 0; part < source.parts().size(); ++part) fingerprints.push_back(source.FingerprintOf(part));
  if (plan.mix) return OrderFingerprint(fingerprints, *plan.mix, seed);
  // The order of buckets depends on how many steps each has, of all ranks together.
  uint64_t hash = HashKey(kBucketsDomain, {plan.options.last == LastBatch::kDrop ? 1u : 0u});
  for (size_t part = 0; part < fingerprints.size(); ++part) {
    const Batching& bucket = plan.buckets[part];
    const uint64_t order = OrderFingerprint(fingerprints[part], bucket.samples, plan.policies[part], seed);
    hash = HashKey(hash, {order, bucket.batch * bucket.world});
  }
  return hash;
}

// Returns true if the fields that are asked for decide which samples there are (image_samples.h).
bool HasOthers(const Source& source) {
  return std::any_of(source.parts().begin(), source.parts().end(), [](const Subset& part) {
    const Index& index = part.index();
    return index.kind() == DataKind::kRawObjects && !index.image_fields().empty() &&
           index.SomeLack(index.image_fields());
  });
}

absl::Status CheckStart(const LoaderPlan& plan) {
  if (!plan.options.start) return absl::OkStatus();
  const Position& start = *plan.options.start;
  if (start.fingerprint != plan.fingerprint) {
    std::string_view more;
    if (plan.source.tokens() != nullptr) more = ", or the rows of tokens (length, layout, long documents)";
    if (plan.bucketed()) {
      more =
          ", or the lengths of the buckets, the rows of a step (batch size x number of ranks) or the use of the last "
          "batch";
    }
    if (HasOthers(plan.source))
      more = ", or fields= are others: they decide which samples without an image belong to the data set";
    return absl::FailedPreconditionError(
        fmt::format("the position {} belongs to another order: the data set, its index, the seed or the shuffle, "
                    "subset or mix differ from the run that wrote it{} (there {:016x}, here {:016x})",
                    start.ToString(), more, start.fingerprint, plan.fingerprint));
  }
  if (start.consumed >= plan.positions()) {
    return absl::InvalidArgumentError(fmt::format("the position {} lies behind the {} {} of an epoch", start.ToString(),
                                                  plan.positions(), plan.bucketed() ? "steps" : "samples"));
  }
  return absl::OkStatus();
}

// Returns the bytes of an epoch that this rank gets. The weights of a mix may prefer any part, so all items count as if
// they were of the part with the largest ones.
uint64_t EpochBytes(const LoaderPlan& plan) {
  const Source& source = plan.source;
  double bytes = 0;
  for (size_t part = 0; part < source.parts().size(); ++part) {
    const double item = source.MeanItemBytesOf(part) + static_cast<double>(FetchedItem::Bookkeeping(0));
    if (plan.mix) {
      bytes = std::max(bytes, item * static_cast<double>(plan.mix->length));
    } else {
      bytes += item * static_cast<double>(source.SizeOf(part));
    }
  }
  bytes /= static_cast<double>(std::max<uint64_t>(plan.options.world, 1));
  return bytes < static_cast<double>(kMaxCounted) ? static_cast<uint64_t>(bytes) + 1 : kMaxCounted;
}

// Splits the budget: a quarter for batches (two at least, which the program may also hold), the rest for fetched bytes.
absl::Status SplitMemory(LoaderPlan* plan) {
  uint64_t memory = plan->options.memory_bytes;
  uint64_t most_rows = 0;
  for (const BatchLayout& layout : plan->layouts) most_rows = std::max(most_rows, layout.batch());
  const uint64_t values = CountValues(plan->fields);
  const uint64_t slot = plan->slot_bytes + most_rows * (kRowBookkeeping + values * kValueBookkeeping);
  const uint64_t reserve = plan->source.max_item_bytes();
  const MemoryShares* const shares = plan->options.shares;
  if (shares != nullptr) memory = shares->NextShare();
  const auto settle_groups = [&] {
    if (plan->source.tokens() != nullptr) plan->group_bytes = std::min(kMaxGroupBytes, memory / 16);
  };
  settle_groups();
  if (std::max(slot, reserve) > kMaxCounted) {
    return absl::ResourceExhaustedError(fmt::format("no memory budget can hold batches of {} and samples of {}",
                                                    FormatSize(slot), FormatSize(reserve)));
  }
  const uint64_t rest = 2 * slot + (values > 0 ? 3 : 2) * reserve + kMinFetchBytes;
  uint64_t least_slots = 2;
  if (shares != nullptr) {
    // A program may keep some batches of each loader, however many share the memory.
    const uint64_t slots = std::clamp<uint64_t>(shares->bytes() / 4 / slot, 2, kSharedSlots);
    const uint64_t works = rest + (slots - 2) * slot + kMaxGroupBytes + MemoryShares::kLeastBytes;
    memory = std::min(shares->bytes(), std::max(memory, works));
    if (memory >= works) least_slots = slots;
    settle_groups();
  }
  plan->options.memory_bytes = memory;
  const uint64_t least = rest + plan->group_bytes;
  const uint64_t by_groups = plan->source.tokens() != nullptr ? least / 15 : 0;  // grows with the budget
  if (memory < least) {
    return absl::ResourceExhaustedError(
        fmt::format("a memory budget of {} cannot hold two batches of {} and the largest samples ({}); {} MiB would "
                    "do, or a smaller batch",
                    FormatSize(memory), FormatSize(slot), FormatSize(reserve), ((least + by_groups) >> 20) + 1));
  }
  const auto is_image = [](const PlannedField& field) { return field.wanted.kind == BatchField::Kind::kImage; };
  const bool small =
      std::none_of(plan->fields.begin(), plan->fields.end(), is_image) && plan->source.tokens() == nullptr;
  if (values > 0) plan->value_bytes = reserve + std::min(memory / 8, (memory - least) / 2);
  plan->slots = std::clamp<uint64_t>(memory / 4 / slot, least_slots, small ? kMaxSmallSlots : kMaxSlots);
  plan->fetch_bytes = memory - plan->slots * slot - reserve - plan->group_bytes - plan->value_bytes;
  plan->account_bytes = memory - plan->slots * plan->slot_bytes - plan->fetch_bytes;
  plan->epoch_bytes = EpochBytes(*plan);
  const uint64_t needed = Fetcher::NeededBytes(FetchOptions(*plan), plan->source);
  plan->unused_bytes = plan->fetch_bytes - std::min(plan->fetch_bytes, needed);
  // The other loaders may end, and leave their share.
  if (shares != nullptr) plan->fetch_bytes += shares->bytes() - memory;
  plan->fetch_bytes = std::min(plan->fetch_bytes, needed);
  return absl::OkStatus();
}

// Returns the order of rows. Rows are fetched by groups, so these are extents. A window must not be larger than that of
// other samples, even if a group is larger: then there are fewer lanes.
OrderPolicy RowPolicy(Shuffle shuffle, const TokenRows& rows) {
  constexpr double kWindowBytes = 256.0 * 1024 * 1024;
  OrderPolicy policy;
  policy.shuffle = shuffle;
  policy.extent = rows.table().group();
  const double extent_bytes = std::max(1.0, rows.mean_row_bytes() * static_cast<double>(policy.extent));
  const auto extents = static_cast<uint64_t>(std::clamp(kWindowBytes / extent_bytes, 1.0, 65536.0));
  policy.lanes = std::min<uint64_t>(64, std::bit_floor(extents));
  policy.window = std::max<uint64_t>(1, extents / policy.lanes) * policy.lanes;
  return policy;
}

absl::Status SettlePolicies(LoaderPlan* plan) {
  const LoaderOptions& options = plan->options;
  for (size_t part = 0; part < plan->source.parts().size(); ++part) {
    const Index& index = plan->source.parts()[part].index();
    const OrderPolicy usual =
        plan->source.tokens() != nullptr
            ? RowPolicy(options.shuffle, *plan->source.rows()[part])
            : OrderPolicy::ForSamples(options.shuffle, index.mean_span_bytes(), index.kind() == DataKind::kRawObjects);
    OrderPolicy policy = usual;
    policy.extent = options.extent.value_or(usual.extent);
    policy.window = options.window.value_or(usual.window);
    policy.lanes = options.lanes.value_or(usual.lanes);
    RETURN_IF_ERROR(policy.Check());
    plan->policies.push_back(policy);
  }
  return absl::OkStatus();
}

// Adds the arrays that say where each row comes from.
void AddOrigin(BatchLayout* layout, bool with_parts) {
  layout->Add("valid", "bool");
  layout->Add("sample", "int64");
  if (with_parts) layout->Add("part", "int64");
}

absl::Status SettleSamples(LoaderPlan* plan) {
  ASSIGN_OR_RETURN(plan->fields, PlanFields(plan->source, plan->options));
  BatchLayout& layout = plan->layouts.emplace_back(plan->options.batch);
  RETURN_IF_ERROR(AddArrays(plan->fields, plan->options, &layout));
  AddOrigin(&layout, plan->with_parts());
  return absl::OkStatus();
}

absl::Status SettleTokens(LoaderPlan* plan) {
  const LoaderOptions& options = plan->options;
  if (options.label || !options.image_field.empty() || !options.fields.empty()) {
    return absl::InvalidArgumentError(
        "rows of tokens have neither images nor labels nor other fields; leave these options out");
  }
  if (options.digest == DigestOf::kDecoded) {
    return absl::InvalidArgumentError("tokens are not decoded: use the digest of stored bytes (raw)");
  }
  if (options.token_type == TokenType::kInt32 && !std::in_range<int32_t>(options.pad_token)) {
    return absl::InvalidArgumentError(
        fmt::format("the token for padding, {}, does not fit into int32", options.pad_token));
  }
  if (options.last == LastBatch::kShort) {
    return absl::InvalidArgumentError(
        "rows of tokens keep the shapes of their batches: the last batch cannot be short; use pad, drop or wrap");
  }
  const TokenOptions& tokens = *plan->source.tokens();
  std::vector<TokenOptions::Bucket> shapes = tokens.buckets;
  if (shapes.empty()) shapes.push_back({tokens.length, options.batch});
  for (const auto& [length, batch] : shapes) {
    if (batch > kMaxTokensOfBatch / length) {
      return absl::InvalidArgumentError(
          fmt::format("a batch of {} rows of {} tokens; choose fewer or shorter ones", batch, length));
    }
    BatchLayout& layout = plan->layouts.emplace_back(batch, length);
    layout.Add("tokens", TokenTypeName(options.token_type), {length}, options.pad_token);
    layout.Add("token_mask", "bool", {length});
    if (tokens.with_segments()) {
      layout.Add("position_ids", "int32", {length});
      layout.Add("segment_ids", "int32", {length});
    }
    layout.Add("row", "int64");
    AddOrigin(&layout, plan->with_parts());
  }
  return absl::OkStatus();
}

Batching BatchingOf(const LoaderOptions& options, uint64_t samples, uint64_t batch) {
  return {.samples = samples,
          .batch = batch,
          .rank = options.rank,
          .world = options.world,
          .last = options.last,
          .begun = options.begun};
}

absl::Status SettleBuckets(LoaderPlan* plan) {
  const std::vector<TokenOptions::Bucket>& buckets = plan->source.tokens()->buckets;
  if (plan->options.mix) return absl::InvalidArgumentError("buckets cannot be mixed with other parts");
  for (size_t part = 0; part < buckets.size(); ++part) {
    plan->buckets.push_back(BatchingOf(plan->options, plan->source.SizeOf(part), buckets[part].batch));
    // A bucket may be empty, or without a full step; the epoch may not.
    Batching checked = plan->buckets.back();
    checked.samples = uint64_t{1} << 60;
    RETURN_IF_ERROR(checked.Check());
    if (buckets[part].batch > kMaxBatch) {
      return absl::InvalidArgumentError(
          fmt::format("a batch of {} rows; choose at most {}", buckets[part].batch, kMaxBatch));
    }
  }
  if (plan->steps() > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      plan->source.size() == 0
          ? "no sample has tokens"
          : "no bucket has a full step, and the last batches are dropped: use smaller batches, pad or wrap");
}

}  // namespace

absl::StatusOr<Mix> MixOf(const Source& source, const std::vector<OrderPolicy>& policies, const MixOptions& options) {
  Mix mix;
  std::vector<uint64_t> sizes;
  for (size_t part = 0; part < source.parts().size(); ++part) {
    sizes.push_back(source.SizeOf(part));
    mix.parts.push_back({sizes.back(), policies[part]});
  }
  mix.length = options.length != 0 ? options.length : source.size();
  mix.stages = options.stages;
  if (mix.stages.empty()) mix.stages = {{0, sizes}};
  // The mix 2 to 1 is the same as 200 to 100, with the same fingerprint.
  for (Mix::Stage& stage : mix.stages) {
    const uint64_t divisor =
        std::reduce(stage.weights.begin(), stage.weights.end(), uint64_t{0}, std::gcd<uint64_t, uint64_t>);
    for (uint64_t& weight : stage.weights) weight /= std::max<uint64_t>(divisor, 1);
  }
  mix.draws = options.draws;
  mix.fresh_passes = options.fresh_passes;
  RETURN_IF_ERROR(mix.Check());
  return mix;
}

uint64_t LoaderPlan::StepsFrom(uint64_t consumed) const {
  if (!bucketed()) return batching.StepsFrom(consumed);
  uint64_t steps = 0;
  for (const Batching& bucket : buckets) steps += bucket.StepsFrom(0);
  return consumed < steps ? steps - consumed : 0;
}

uint64_t LoaderPlan::After(uint64_t consumed) const {
  return bucketed() ? consumed + 1 : batching.After(consumed);
}

uint64_t LoaderPlan::positions() const {
  return bucketed() ? steps() : batching.samples;
}

namespace {

absl::StatusOr<LoaderPlan> SettleSome(const Source& all, LoaderOptions options, bool order_only) {
  if (options.batch > kMaxBatch) {
    return absl::InvalidArgumentError(
        fmt::format("a batch of {} samples; choose at most {}", options.batch, kMaxBatch));
  }
  if (options.local_ranks > options.world) {
    return absl::InvalidArgumentError(fmt::format("{} ranks of this machine are more than all {}; say both as they are",
                                                  options.local_ranks, options.world));
  }
  ASSIGN_OR_RETURN(ImageSamples samples, OnlyImageSamples(all, WantedFields::Of(options)));
  if (!order_only) RETURN_IF_ERROR(samples.refusal());
  LoaderPlan plan{.options = std::move(options), .source = std::move(samples.source)};
  for (ImageSamples::LeftOut& one : samples.left_out) plan.left_out.push_back(std::move(one.sentence));
  const Source& source = plan.source;
  RETURN_IF_ERROR(SettlePolicies(&plan));
  const bool bucketed = source.tokens() != nullptr && !source.tokens()->buckets.empty();
  if (bucketed) {
    RETURN_IF_ERROR(SettleBuckets(&plan));
  } else if (plan.options.mix || source.parts().size() > 1) {
    ASSIGN_OR_RETURN(plan.mix, MixOf(source, plan.policies, plan.options.mix.value_or(MixOptions{})));
  }
  if (!order_only) RETURN_IF_ERROR(source.tokens() != nullptr ? SettleTokens(&plan) : SettleSamples(&plan));
  for (const BatchLayout& layout : plan.layouts) plan.slot_bytes = std::max(plan.slot_bytes, layout.bytes());
  if (!bucketed) {
    plan.batching = BatchingOf(plan.options, plan.mix ? plan.mix->length : source.size(), plan.options.batch);
    RETURN_IF_ERROR(plan.batching.Check());
  }
  plan.fingerprint = FingerprintOf(plan);
  RETURN_IF_ERROR(CheckStart(plan));
  std::optional<Position>& start = plan.options.start;
  if (start && plan.StepsFrom(start->consumed) == 0) {
    // The position was written with smaller batches, and the rest is dropped: the place is the start of the next epoch.
    start = Position{start->epoch + 1, 0, plan.fingerprint};
  }
  if (!order_only) RETURN_IF_ERROR(SplitMemory(&plan));
  return plan;
}

}  // namespace

absl::StatusOr<LoaderPlan> Settle(const Source& source, LoaderOptions options) {
  return SettleSome(source, std::move(options), /*order_only=*/false);
}

absl::StatusOr<LoaderPlan> SettleOrder(const Source& source, LoaderOptions options) {
  return SettleSome(source, std::move(options), /*order_only=*/true);
}

absl::Status NoRoomForLoader(uint64_t memory, const MemoryBudget& budget) {
  return absl::ResourceExhaustedError(
      fmt::format("a loader of {} does not fit into the process's budget of {}, of which {} are taken (other loaders, "
                  "batches that the program holds)",
                  FormatSize(memory), FormatSize(budget.limit()), FormatSize(budget.used())));
}

absl::Status LoaderRefused(uint64_t memory, const std::exception& error) {
  return absl::ResourceExhaustedError(fmt::format("the system refuses a memory budget of {} ({}); choose a smaller one",
                                                  FormatSize(memory), error.what()));
}

std::vector<BatchShape> ShapesOf(const LoaderPlan& plan) {
  std::vector<BatchShape> shapes;
  for (const BatchLayout& layout : plan.layouts) shapes.push_back(layout.shape());
  return shapes;
}

}  // namespace millrace
