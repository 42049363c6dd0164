#include "pipeline/loader.h"

#include <fmt/format.h>

#include <new>

#include "base/size.h"
#include "pipeline/engine.h"
#include "pipeline/loader_plan.h"

namespace millrace {

Loader::Loader(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
Loader::~Loader() = default;

absl::StatusOr<std::unique_ptr<Loader>> Loader::Create(Runtime& runtime, const Source& source, LoaderOptions options) {
  const uint64_t memory = options.memory_bytes;
  absl::StatusOr<LoaderPlan> plan = Settle(source, std::move(options));
  if (!plan.ok()) return Annotate(plan.status(), source.uri());
  const uint64_t slot_bytes = plan->slots * plan->slot_bytes;
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
  return engine_->plan().steps();
}
uint64_t Loader::samples_per_epoch() const {
  const LoaderPlan& plan = engine_->plan();
  return plan.bucketed() ? plan.source.size() : plan.batching.samples;
}
std::vector<BatchShape> Loader::shapes() const {
  return ShapesOf(engine_->plan());
}

}  // namespace millrace
