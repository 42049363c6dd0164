#include "pipeline/loader.h"

#include <fmt/format.h>

#include <exception>

#include "base/log.h"
#include "pipeline/class_check.h"
#include "pipeline/engine.h"
#include "pipeline/loader_facts.h"
#include "pipeline/loader_plan.h"

namespace millrace {

absl::StatusOr<std::unique_ptr<Loader>> Loader::Create(Runtime& runtime, const Source& source, LoaderOptions options) {
  MemoryShares* const shares = options.shares;
  absl::StatusOr<LoaderPlan> plan = Settle(source, std::move(options));
  if (!plan.ok()) return Annotate(plan.status(), source.uri());
  const uint64_t slot_bytes = plan->slots * plan->slot_bytes;
  Reservation slots = runtime.memory().TryReserve(slot_bytes);
  const uint64_t memory = plan->options.memory_bytes;
  EngineMemory engine_memory;
  if (shares != nullptr) {
    engine_memory.share = shares->Join(plan->fetch_bytes + slot_bytes + plan->account_bytes, slot_bytes);
  } else {
    engine_memory.fetch = runtime.memory().TryReserve(memory - slot_bytes - plan->unused_bytes);
  }
  if (!slots || (!engine_memory.share && !engine_memory.fetch)) return NoRoomForLoader(memory, runtime.memory());
  engine_memory.slots = std::move(slots);
  try {
    return std::make_unique<Engine>(runtime, *std::move(plan), std::move(engine_memory));
  } catch (const std::exception& error) {  // std::bad_alloc, or no thread
    return LoaderRefused(memory, error);
  }
}

absl::Status Loader::Check(const Source& source, LoaderOptions options) {
  return Annotate(Settle(source, std::move(options)).status(), source.uri());
}

absl::StatusOr<LoaderFacts> DescribeLoader(const Source& source, LoaderOptions options) {
  absl::StatusOr<LoaderPlan> plan = Settle(source, std::move(options));
  if (!plan.ok()) return Annotate(plan.status(), source.uri());
  return LoaderFacts{.shapes = ShapesOf(*plan),
                     .steps_per_epoch = plan->steps(),
                     .start = plan->options.start.value_or(Position{0, 0, plan->fingerprint})};
}

absl::Status CheckSamples(const Source& source, LoaderOptions options, const std::stop_token& stop) {
  absl::StatusOr<LoaderPlan> plan = Settle(source, std::move(options));
  if (!plan.ok()) return Annotate(plan.status(), source.uri());
  for (const std::string& sentence : plan->left_out)
    Log(LogLevel::kWarning, "loader", fmt::format("{}: {}", source.uri(), sentence));
  return Annotate(CheckClasses(*plan, stop), source.uri());
}

}  // namespace millrace
