#include "pipeline/loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <set>

#include "base/size.h"
#include "pipeline/engine.h"
#include "pipeline/loader_plan.h"
#include "shard/field_value.h"

namespace millrace {

namespace {

constexpr uint64_t kAlignment = 64;
// Below this, fetched bytes would not cover the latency of any store.
constexpr uint64_t kMinFetchBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxSlots = 65536;
constexpr uint64_t kMaxSmallSlots = 256;  // without images, what is kept of each row beside the slot is most of it
// Keeps every product of sizes below 2^63.
constexpr uint64_t kMaxBatch = uint64_t{1} << 24;

uint64_t RoundUp(uint64_t value) {
  return (value + kAlignment - 1) / kAlignment * kAlignment;
}

// Of all parts: a data set that has none of them shows when its first sample is decoded.
std::vector<std::string> FieldNames(const Source& source) {
  std::set<std::string> names;
  for (const Subset& part : source.parts())
    names.insert(part.index().field_names().begin(), part.index().field_names().end());
  return {names.begin(), names.end()};
}

// Whether samples hold arrays, by the first one of each part.
absl::StatusOr<bool> HoldsArrays(const Source& source) {
  IndexedSample first;
  for (const Subset& part : source.parts()) {
    RETURN_IF_ERROR(part.index().Lookup(0, &first));
    const bool arrays = std::any_of(first.fields.begin(), first.fields.end(), [](const IndexedField& field) {
      return TypeOfEncoding(field.encoding) == FieldType::kNdarray;
    });
    if (!arrays) return false;
  }
  return true;
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
  if (!images.empty()) return std::vector<std::string>(images.begin(), images.end());
  ASSIGN_OR_RETURN(const bool arrays, HoldsArrays(source));
  if (arrays && options.allow_arrays) return std::vector<std::string>();
  return absl::FailedPreconditionError(
      fmt::format("no field of the data set is a jpg, jpeg or png; its fields are: {}", fmt::join(names, ", ")));
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

uint64_t FingerprintOf(const LoaderPlan& plan) {
  const std::vector<Subset>& parts = plan.source.parts();
  if (!plan.mix) {
    return OrderFingerprint(parts.front().fingerprint(), parts.front().size(), plan.policy(), plan.options.seed);
  }
  std::vector<uint64_t> fingerprints;
  for (const Subset& part : parts) fingerprints.push_back(part.fingerprint());
  return OrderFingerprint(fingerprints, *plan.mix, plan.options.seed);
}

absl::Status CheckStart(const LoaderPlan& plan) {
  if (!plan.options.start) return absl::OkStatus();
  const Position& start = *plan.options.start;
  if (start.fingerprint != plan.fingerprint) {
    return absl::FailedPreconditionError(
        fmt::format("the position {} belongs to another order: the data set, its index, the seed or the shuffle, "
                    "subset or mix are not those of the run that wrote it (there {:016x}, here {:016x})",
                    start.ToString(), start.fingerprint, plan.fingerprint));
  }
  if (start.consumed >= plan.batching.samples) {
    return absl::InvalidArgumentError(
        fmt::format("the position {} lies behind the {} samples of an epoch", start.ToString(), plan.batching.samples));
  }
  return absl::OkStatus();
}

// Splits the budget: a quarter for batches (two at least, which also the program may hold), the rest for fetched bytes.
absl::Status SplitMemory(LoaderPlan* plan) {
  const uint64_t memory = plan->options.memory_bytes;
  const uint64_t slot = plan->layout.bytes;
  const uint64_t reserve = plan->source.max_span_bytes();
  const uint64_t least = 2 * slot + 2 * reserve + kMinFetchBytes;
  if (memory < least) {
    return absl::ResourceExhaustedError(
        fmt::format("a memory budget of {} cannot hold two batches of {} and the largest samples ({}); {} MiB would "
                    "do, or a smaller batch",
                    FormatSize(memory), FormatSize(slot), FormatSize(reserve), (least >> 20) + 1));
  }
  plan->slots = std::clamp<uint64_t>(memory / 4 / slot, 2, plan->image_fields.empty() ? kMaxSmallSlots : kMaxSlots);
  plan->fetch_bytes = memory - plan->slots * slot - reserve;
  return absl::OkStatus();
}

}  // namespace

SlotLayout::SlotLayout(uint64_t batch_size, uint64_t bytes_of_image, bool with_parts)
    : batch(batch_size), image_bytes(bytes_of_image) {
  labels = RoundUp(batch * image_bytes);
  mask = labels + RoundUp(batch * sizeof(int64_t));
  samples = mask + RoundUp(batch);
  parts = samples + RoundUp(batch * sizeof(uint64_t));
  bytes = parts + (with_parts ? RoundUp(batch * sizeof(uint64_t)) : 0);
}

absl::StatusOr<Mix> MixOf(const Source& source, const std::vector<OrderPolicy>& policies, const MixOptions& options) {
  Mix mix;
  std::vector<uint64_t> sizes;
  for (size_t part = 0; part < source.parts().size(); ++part) {
    sizes.push_back(source.parts()[part].size());
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

Plan LoaderPlan::PlanOf(uint64_t epoch) const {
  return mix ? Plan(*mix, options.seed, epoch) : Plan(batching.samples, policy(), options.seed, epoch);
}

absl::StatusOr<LoaderPlan> Settle(const Source& source, LoaderOptions options) {
  RETURN_IF_ERROR(options.image.Check());
  if (options.batch > kMaxBatch) {
    return absl::InvalidArgumentError(
        fmt::format("a batch of {} samples; choose at most {}", options.batch, kMaxBatch));
  }
  LoaderPlan plan{.options = options, .source = source};
  for (const Subset& part : source.parts()) {
    const Index& index = part.index();
    plan.policies.push_back(options.policy.value_or(
        OrderPolicy::ForSamples(options.shuffle, index.mean_span_bytes(), index.kind() == DataKind::kRawObjects)));
    RETURN_IF_ERROR(plan.policies.back().Check());
  }
  if (options.mix || source.parts().size() > 1) {
    ASSIGN_OR_RETURN(plan.mix, MixOf(source, plan.policies, options.mix.value_or(MixOptions{})));
  }
  ASSIGN_OR_RETURN(plan.image_fields, FindImageFields(source, options));
  plan.layout = SlotLayout(options.batch, plan.image_fields.empty() ? 0 : options.image.bytes(), plan.mix.has_value());
  ASSIGN_OR_RETURN(plan.label, FindLabel(source, options.label));
  plan.text_labels = plan.label && plan.label->spec.kind == LabelSpec::Kind::kText;
  plan.batching = {.samples = plan.mix ? plan.mix->length : source.size(),
                   .batch = options.batch,
                   .rank = options.rank,
                   .world = options.world,
                   .last = options.last};
  RETURN_IF_ERROR(plan.batching.Check());
  plan.fingerprint = FingerprintOf(plan);
  RETURN_IF_ERROR(CheckStart(plan));
  if (plan.options.start && plan.batching.StepsFrom(plan.options.start->consumed) == 0) {
    // Written with smaller batches, and what is left is dropped: the place is the start of the next epoch.
    plan.options.start = Position{plan.options.start->epoch + 1, 0, plan.fingerprint};
  }
  RETURN_IF_ERROR(SplitMemory(&plan));
  return plan;
}

Loader::Loader(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
Loader::~Loader() = default;

absl::StatusOr<std::unique_ptr<Loader>> Loader::Create(Runtime& runtime, const Source& source, LoaderOptions options) {
  const uint64_t memory = options.memory_bytes;
  absl::StatusOr<LoaderPlan> plan = Settle(source, std::move(options));
  if (!plan.ok()) return Annotate(plan.status(), source.uri());
  const uint64_t slot_bytes = plan->slots * plan->layout.bytes;
  Reservation slots = runtime.memory().TryReserve(slot_bytes);
  Reservation fetch = runtime.memory().TryReserve(memory - slot_bytes);
  if (!slots || !fetch) {
    return absl::ResourceExhaustedError(
        fmt::format("a loader of {} does not fit into the process's budget of {}, of which {} are taken (other "
                    "loaders, batches that the "
                    "program holds)",
                    FormatSize(memory), FormatSize(runtime.memory().limit()), FormatSize(runtime.memory().used())));
  }
  try {
    return std::unique_ptr<Loader>(
        new Loader(std::make_unique<Engine>(runtime, *std::move(plan), std::move(fetch), std::move(slots))));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        fmt::format("the system refuses a memory budget of {}; choose a smaller one", FormatSize(memory)));
  }
}

absl::Status Loader::Check(const Source& source, LoaderOptions options) {
  return Annotate(Settle(source, std::move(options)).status(), source.uri());
}

absl::StatusOr<std::optional<Batch>> Loader::Next() {
  return engine_->Next();
}
bool Loader::WaitReady(std::chrono::nanoseconds limit) {
  return engine_->WaitReady(limit);
}
LoaderReport Loader::report() const {
  return engine_->report();
}
const OrderPolicy& Loader::policy() const {
  return engine_->plan().policy();
}
const std::optional<LabelOptions>& Loader::label() const {
  return engine_->plan().label;
}
uint64_t Loader::steps_per_epoch() const {
  return engine_->plan().batching.StepsFrom(0);
}
uint64_t Loader::samples_per_epoch() const {
  return engine_->plan().batching.samples;
}

}  // namespace millrace
