#include "pipeline/loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>

#include "base/size.h"
#include "pipeline/engine.h"
#include "pipeline/loader_plan.h"

namespace millrace {

namespace {

constexpr uint64_t kAlignment = 64;
// Below this, fetched bytes would not cover the latency of any store.
constexpr uint64_t kMinFetchBytes = uint64_t{1} << 20;
// Keeps every product of sizes below 2^63.
constexpr uint64_t kMaxBatch = uint64_t{1} << 24;

uint64_t RoundUp(uint64_t value) {
  return (value + kAlignment - 1) / kAlignment * kAlignment;
}

absl::StatusOr<std::vector<std::string>> FindImageFields(const Index& index, const std::string& wanted) {
  const std::vector<std::string>& names = index.field_names();
  if (!wanted.empty()) {
    if (std::find(names.begin(), names.end(), wanted) != names.end()) return std::vector<std::string>{wanted};
    return absl::InvalidArgumentError(
        fmt::format("the data set has no field '{}'; its fields are: {}", wanted, fmt::join(names, ", ")));
  }
  if (!index.image_fields().empty()) return index.image_fields();
  return absl::FailedPreconditionError(
      fmt::format("no field of the data set is a jpg, jpeg or png; its fields are: {}", fmt::join(names, ", ")));
}

absl::StatusOr<std::optional<LabelOptions>> FindLabel(const Index& index, const std::optional<LabelOptions>& wanted) {
  const std::vector<std::string>& names = index.field_names();
  const LabelOptions label = wanted.value_or(LabelOptions{});
  if (std::find(names.begin(), names.end(), label.field) != names.end()) return std::optional(label);
  if (!wanted) return std::optional<LabelOptions>();
  return absl::InvalidArgumentError(fmt::format("the data set has no field '{}' for labels; its fields are: {}",
                                                label.field, fmt::join(names, ", ")));
}

absl::Status CheckStart(const LoaderPlan& plan) {
  if (!plan.options.start) return absl::OkStatus();
  const Position& start = *plan.options.start;
  if (start.fingerprint != plan.fingerprint) {
    return absl::FailedPreconditionError(
        fmt::format("the position {} belongs to another order: the data set, its index, the seed or the shuffle "
                    "options are not those of "
                    "the run that wrote it (there {:016x}, here {:016x})",
                    start.ToString(), start.fingerprint, plan.fingerprint));
  }
  if (start.consumed >= plan.batching.samples) {
    return absl::InvalidArgumentError(
        fmt::format("the position {} lies behind the {} samples of an epoch", start.ToString(), plan.batching.samples));
  }
  return absl::OkStatus();
}

// Splits the budget: a quarter for batches (two at least, which also the program may hold), the rest for fetched bytes.
absl::Status SplitMemory(const Index& index, LoaderPlan* plan) {
  const uint64_t memory = plan->options.memory_bytes;
  const uint64_t slot = plan->layout.bytes;
  const uint64_t reserve = index.max_span_bytes();
  const uint64_t least = 2 * slot + 2 * reserve + kMinFetchBytes;
  if (memory < least) {
    return absl::ResourceExhaustedError(
        fmt::format("a memory budget of {} cannot hold two batches of {} and the largest samples ({}); {} MiB would "
                    "do, or a smaller batch",
                    FormatSize(memory), FormatSize(slot), FormatSize(reserve), (least >> 20) + 1));
  }
  plan->slots = std::clamp<uint64_t>(memory / 4 / slot, 2, 65536);
  plan->fetch_bytes = memory - plan->slots * slot - reserve;
  return absl::OkStatus();
}

}  // namespace

SlotLayout::SlotLayout(uint64_t batch_size, const ImageSpec& image) : batch(batch_size), image_bytes(image.bytes()) {
  labels = RoundUp(batch * image_bytes);
  mask = labels + RoundUp(batch * sizeof(int64_t));
  samples = mask + RoundUp(batch);
  bytes = samples + RoundUp(batch * sizeof(uint64_t));
}

absl::StatusOr<LoaderPlan> Settle(const Dataset& dataset, LoaderOptions options) {
  const Index& index = dataset.index();
  RETURN_IF_ERROR(options.image.Check());
  if (options.batch > kMaxBatch) {
    return absl::InvalidArgumentError(
        fmt::format("a batch of {} samples; choose at most {}", options.batch, kMaxBatch));
  }
  LoaderPlan plan;
  plan.options = options;
  plan.layout = SlotLayout(options.batch, options.image);
  plan.policy = options.policy.value_or(
      OrderPolicy::ForSamples(options.shuffle, index.mean_span_bytes(), index.kind() == DataKind::kRawObjects));
  RETURN_IF_ERROR(plan.policy.Check());
  ASSIGN_OR_RETURN(plan.image_fields, FindImageFields(index, options.image_field));
  ASSIGN_OR_RETURN(plan.label, FindLabel(index, options.label));
  plan.text_labels = plan.label && plan.label->spec.kind == LabelSpec::Kind::kText;
  plan.batching = {.samples = index.size(),
                   .batch = options.batch,
                   .rank = options.rank,
                   .world = options.world,
                   .last = options.last};
  RETURN_IF_ERROR(plan.batching.Check());
  plan.fingerprint = OrderFingerprint(index.fingerprint(), index.size(), plan.policy, options.seed);
  RETURN_IF_ERROR(CheckStart(plan));
  if (plan.options.start && plan.batching.StepsFrom(plan.options.start->consumed) == 0) {
    // Written with smaller batches, and what is left is dropped: the place is the start of the next epoch.
    plan.options.start = Position{plan.options.start->epoch + 1, 0, plan.fingerprint};
  }
  RETURN_IF_ERROR(SplitMemory(index, &plan));
  return plan;
}

Loader::Loader(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
Loader::~Loader() = default;

absl::StatusOr<std::unique_ptr<Loader>> Loader::Create(Runtime& runtime, const Dataset& dataset,
                                                       LoaderOptions options) {
  const uint64_t memory = options.memory_bytes;
  absl::StatusOr<LoaderPlan> plan = Settle(dataset, std::move(options));
  if (!plan.ok()) return Annotate(plan.status(), dataset.uri());
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
        new Loader(std::make_unique<Engine>(runtime, dataset, *std::move(plan), std::move(fetch), std::move(slots))));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        fmt::format("the system refuses a memory budget of {}; choose a smaller one", FormatSize(memory)));
  }
}

absl::Status Loader::Check(const Dataset& dataset, LoaderOptions options) {
  return Annotate(Settle(dataset, std::move(options)).status(), dataset.uri());
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
  return engine_->plan().policy;
}
const std::optional<LabelOptions>& Loader::label() const {
  return engine_->plan().label;
}
uint64_t Loader::steps_per_epoch() const {
  return engine_->plan().batching.StepsFrom(0);
}

}  // namespace millrace
