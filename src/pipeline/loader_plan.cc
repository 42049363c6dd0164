#include "pipeline/loader_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "base/rng.h"
#include "base/size.h"
#include "shard/field_value.h"

namespace millrace {

namespace {

// Below this, fetched bytes would not cover the latency of any store.
constexpr uint64_t kMinFetchBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxSlots = 65536;
constexpr uint64_t kMaxSmallSlots = 256;  // without images, what is kept of each row beside the slot is most of it
// Keeps every product of sizes below 2^63.
constexpr uint64_t kMaxBatch = uint64_t{1} << 24;
constexpr uint64_t kMaxTokensOfBatch = uint64_t{1} << 36;
constexpr uint64_t kMaxGroupBytes = uint64_t{16} << 20;
constexpr uint64_t kRowBookkeeping = 256;                // of each row of a batch beside its slot: key, label, states
constexpr uint64_t kBucketsDomain = 0x4d522d6275636b73;  // "MR-bucks"

// Of all parts: a data set that has none of them shows when its first sample is decoded.
std::vector<std::string> FieldNames(const Source& source) {
  std::set<std::string> names;
  for (const Subset& part : source.parts())
    names.insert(part.index().field_names().begin(), part.index().field_names().end());
  return {names.begin(), names.end()};
}

// Whether samples hold arrays, by the first one.
absl::StatusOr<bool> HoldsArrays(const Subset& part) {
  if (part.index().size() == 0) return false;
  IndexedSample first;
  RETURN_IF_ERROR(part.index().Lookup(0, &first));
  return std::any_of(first.fields.begin(), first.fields.end(),
                     [](const IndexedField& field) { return TypeOfEncoding(field.encoding) == FieldType::kNdarray; });
}

std::string NoImages(const std::vector<std::string>& names) {
  return fmt::format("no field of the data set is a jpg, jpeg or png; its fields are: {}", fmt::join(names, ", "));
}

// A data set of arrays is delivered as it is only where nothing else is: images beside it have another shape.
absl::Status NoImagesButArrays(const Source& source, const Subset& part) {
  const bool mixed = source.parts().size() > 1;
  return absl::FailedPreconditionError(fmt::format(
      "{}{}; token files are fed as rows: give --tokens (in Python tokens=){}", mixed ? part.dataset->uri() + ": " : "",
      NoImages(part.index().field_names()), mixed ? ", and mix them with token files only" : ""));
}

// Empty: there are none, and need not be.
absl::StatusOr<std::vector<std::string>> FindImageFields(const Source& source, const LoaderOptions& options) {
  const std::string& wanted = options.image_field;
  const std::vector<std::string> names = FieldNames(source);
  if (!wanted.empty()) {
    if (std::find(names.begin(), names.end(), wanted) != names.end()) return std::vector<std::string>{wanted};
    return absl::InvalidArgumentError(
        fmt::format("the data set has no field '{}'; its fields are: {}", wanted, fmt::join(names, ", ")));
  }
  std::set<std::string> images;
  for (const Subset& part : source.parts())
    images.insert(part.index().image_fields().begin(), part.index().image_fields().end());
  bool all_arrays = true;
  for (const Subset& part : source.parts()) {
    ASSIGN_OR_RETURN(const bool arrays, HoldsArrays(part));
    const bool has_images = !part.index().image_fields().empty();
    if (arrays && !has_images && (!images.empty() || !options.allow_arrays)) return NoImagesButArrays(source, part);
    all_arrays = all_arrays && arrays;
  }
  if (!images.empty()) return std::vector<std::string>(images.begin(), images.end());
  if (all_arrays) return std::vector<std::string>();
  return absl::FailedPreconditionError(NoImages(names));
}

absl::StatusOr<std::optional<LabelOptions>> FindLabel(const Source& source, const std::optional<LabelOptions>& wanted) {
  const LabelOptions label = wanted.value_or(LabelOptions{});
  for (const Subset& part : source.parts()) {
    const std::vector<std::string>& names = part.index().field_names();
    if (std::find(names.begin(), names.end(), label.field) != names.end()) continue;
    if (!wanted) return std::optional<LabelOptions>();
    return absl::InvalidArgumentError(fmt::format("the data set {} has no field '{}' for labels; its fields are: {}",
                                                  part.dataset->uri(), label.field, fmt::join(names, ", ")));
  }
  return std::optional(label);
}

// Where classes are names, each data set numbers its own. In a mix of different ones they are numbered by all names.
absl::Status NumberClasses(LoaderPlan* plan) {
  if (!plan->label || plan->label->field != "cls" || plan->label->spec != LabelSpec{}) return absl::OkStatus();
  std::set<std::string> all;
  const Dataset* numbered = nullptr;
  for (const Subset& part : plan->source.parts()) {
    const std::vector<std::string>& names = part.index().class_names();
    if (names.empty()) numbered = part.dataset;
    all.insert(names.begin(), names.end());
  }
  std::vector<std::vector<int64_t>> numbers;
  bool alike = true;
  for (const Subset& part : plan->source.parts()) {
    const std::vector<std::string>& names = part.index().class_names();
    numbers.emplace_back();
    for (const std::string& name : names) numbers.back().push_back(std::distance(all.begin(), all.find(name)));
    if (names.empty() || names.size() == all.size()) continue;
    alike = false;
    if (numbered == nullptr) continue;
    return absl::InvalidArgumentError(
        fmt::format("classes of {} are names, which are numbered together with those of the other data sets of the "
                    "mix, but classes of "
                    "{} are numbers: pack the data sets with numbers by one --class-map",
                    part.dataset->uri(), numbered->uri()));
  }
  if (!alike) plan->class_numbers = std::move(numbers);
  return absl::OkStatus();
}

uint64_t FingerprintOf(const LoaderPlan& plan) {
  const Source& source = plan.source;
  const uint64_t seed = plan.options.seed;
  if (!plan.mix && !plan.bucketed())
    return OrderFingerprint(source.FingerprintOf(0), source.size(), plan.policy(), seed);
  std::vector<uint64_t> fingerprints;
  for (size_t part = 0; part < source.parts().size(); ++part) fingerprints.push_back(source.FingerprintOf(part));
  if (plan.mix) return OrderFingerprint(fingerprints, *plan.mix, seed);
  // Which bucket is whose turn depends on how many steps each has, of all ranks together.
  uint64_t hash = HashKey(kBucketsDomain, {plan.options.last == LastBatch::kDrop ? 1u : 0u});
  for (size_t part = 0; part < fingerprints.size(); ++part) {
    const Batching& bucket = plan.buckets[part];
    const uint64_t order = OrderFingerprint(fingerprints[part], bucket.samples, plan.policies[part], seed);
    hash = HashKey(hash, {order, bucket.batch * bucket.world});
  }
  return hash;
}

absl::Status CheckStart(const LoaderPlan& plan) {
  if (!plan.options.start) return absl::OkStatus();
  const Position& start = *plan.options.start;
  if (start.fingerprint != plan.fingerprint) {
    std::string_view more;
    if (plan.source.tokens() != nullptr) more = ", or the rows of tokens (length, layout, long documents)";
    if (plan.bucketed()) {
      more =
          ", or the lengths of the buckets, the rows of their steps (batch size x number of ranks) or whether the last "
          "batch "
          "is dropped, all of which decide about the order of steps";
    }
    return absl::FailedPreconditionError(
        fmt::format("the position {} belongs to another order: the data set, its index, the seed or the shuffle, "
                    "subset or mix are not those of the run that wrote it{} (there {:016x}, here {:016x})",
                    start.ToString(), more, start.fingerprint, plan.fingerprint));
  }
  if (start.consumed >= plan.positions()) {
    return absl::InvalidArgumentError(fmt::format("the position {} lies behind the {} {} of an epoch", start.ToString(),
                                                  plan.positions(), plan.bucketed() ? "steps" : "samples"));
  }
  return absl::OkStatus();
}

// Splits the budget: a quarter for batches (two at least, which also the program may hold), the rest for fetched bytes.
absl::Status SplitMemory(LoaderPlan* plan) {
  const uint64_t memory = plan->options.memory_bytes;
  uint64_t most_rows = 0;
  for (const BatchLayout& layout : plan->layouts) most_rows = std::max(most_rows, layout.batch());
  const uint64_t slot = plan->slot_bytes + most_rows * kRowBookkeeping;
  const uint64_t reserve = plan->source.max_item_bytes();
  if (plan->source.tokens() != nullptr) plan->group_bytes = std::min(kMaxGroupBytes, memory / 16);
  const uint64_t least = 2 * slot + 2 * reserve + kMinFetchBytes + plan->group_bytes;
  const uint64_t by_groups = plan->source.tokens() != nullptr ? least / 15 : 0;  // grows with the budget
  if (memory < least) {
    return absl::ResourceExhaustedError(
        fmt::format("a memory budget of {} cannot hold two batches of {} and the largest samples ({}); {} MiB would "
                    "do, or a smaller batch",
                    FormatSize(memory), FormatSize(slot), FormatSize(reserve), ((least + by_groups) >> 20) + 1));
  }
  const bool small = plan->image_fields.empty() && plan->source.tokens() == nullptr;
  plan->slots = std::clamp<uint64_t>(memory / 4 / slot, 2, small ? kMaxSmallSlots : kMaxSlots);
  plan->fetch_bytes = memory - plan->slots * slot - reserve - plan->group_bytes;
  return absl::OkStatus();
}

// Rows are fetched by groups, so these are extents. A window is to be no larger than that of other samples, also where
// a group is: then with fewer lanes.
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

// What batches say of each row.
void AddOrigin(BatchLayout* layout, bool with_parts) {
  layout->Add("mask", "bool");
  layout->Add("sample", "int64");
  if (with_parts) layout->Add("part", "int64");
}

absl::Status SettleImages(LoaderPlan* plan) {
  const LoaderOptions& options = plan->options;
  RETURN_IF_ERROR(options.image.Check());
  ASSIGN_OR_RETURN(plan->image_fields, FindImageFields(plan->source, options));
  ASSIGN_OR_RETURN(plan->label, FindLabel(plan->source, options.label));
  plan->text_labels = plan->label && plan->label->spec.kind == LabelSpec::Kind::kText;
  BatchLayout& layout = plan->layouts.emplace_back(options.batch);
  if (!plan->image_fields.empty()) {
    const auto height = static_cast<uint64_t>(options.image.height);
    const auto width = static_cast<uint64_t>(options.image.width);
    const auto channels = static_cast<uint64_t>(options.image.channels);
    const bool last = options.image.layout == Layout::kNhwc;
    layout.Add("image", options.image.dtype == DType::kF32 ? "float32" : "uint8",
               last ? std::vector{height, width, channels} : std::vector{channels, height, width});
  }
  if (plan->label && !plan->text_labels) layout.Add("label", "int64", {}, -1);
  AddOrigin(&layout, plan->with_parts());
  return NumberClasses(plan);
}

absl::Status SettleTokens(LoaderPlan* plan) {
  const LoaderOptions& options = plan->options;
  if (options.label || !options.image_field.empty()) {
    return absl::InvalidArgumentError("rows of tokens have neither images nor labels; leave these options out");
  }
  if (options.digest == DigestOf::kDecoded) {
    return absl::InvalidArgumentError("tokens are not decoded: use the digest of stored bytes (raw)");
  }
  if (options.token_type == TokenType::kInt32 && !std::in_range<int32_t>(options.pad_token)) {
    return absl::InvalidArgumentError(
        fmt::format("the token for padding, {}, does not fit into int32", options.pad_token));
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
  return {.samples = samples, .batch = batch, .rank = options.rank, .world = options.world, .last = options.last};
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
  // 2 to 1 is the mix that 200 to 100 is, with the same fingerprint.
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

absl::StatusOr<LoaderPlan> Settle(const Source& source, LoaderOptions options) {
  if (options.batch > kMaxBatch) {
    return absl::InvalidArgumentError(
        fmt::format("a batch of {} samples; choose at most {}", options.batch, kMaxBatch));
  }
  LoaderPlan plan{.options = std::move(options), .source = source};
  RETURN_IF_ERROR(SettlePolicies(&plan));
  const bool bucketed = source.tokens() != nullptr && !source.tokens()->buckets.empty();
  if (bucketed) {
    RETURN_IF_ERROR(SettleBuckets(&plan));
  } else if (plan.options.mix || source.parts().size() > 1) {
    ASSIGN_OR_RETURN(plan.mix, MixOf(source, plan.policies, plan.options.mix.value_or(MixOptions{})));
  }
  RETURN_IF_ERROR(source.tokens() != nullptr ? SettleTokens(&plan) : SettleImages(&plan));
  for (const BatchLayout& layout : plan.layouts) plan.slot_bytes = std::max(plan.slot_bytes, layout.bytes());
  if (!bucketed) {
    plan.batching = BatchingOf(plan.options, plan.mix ? plan.mix->length : source.size(), plan.options.batch);
    RETURN_IF_ERROR(plan.batching.Check());
  }
  plan.fingerprint = FingerprintOf(plan);
  RETURN_IF_ERROR(CheckStart(plan));
  std::optional<Position>& start = plan.options.start;
  if (start && plan.StepsFrom(start->consumed) == 0) {
    // Written with smaller batches, and what is left is dropped: the place is the start of the next epoch.
    start = Position{start->epoch + 1, 0, plan.fingerprint};
  }
  RETURN_IF_ERROR(SplitMemory(&plan));
  return plan;
}

std::vector<BatchShape> ShapesOf(const LoaderPlan& plan) {
  std::vector<BatchShape> shapes;
  for (const BatchLayout& layout : plan.layouts) shapes.push_back(layout.shape());
  return shapes;
}

}  // namespace millrace
