#include "service/local_stream.h"

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "service/row_functions.h"

namespace millrace {

namespace {

// The caller does nothing else for this long.
constexpr std::chrono::milliseconds kLocalSlice{50};
// Other loaders of this process may take the memory for a moment, between two of this stream.
constexpr int kMemoryTries = 200;

WireBatch FrameOf(Batch batch) {
  WireBatch frame;
  static_cast<BatchFacts&>(frame.facts) = std::move(static_cast<BatchFacts&>(batch));
  for (const BatchArray& array : batch.arrays) {
    frame.facts.array_bytes.push_back(array.bytes.size());
    frame.arrays.emplace_back(array.bytes);
  }
  return frame;
}

}  // namespace

LocalStream::LocalStream(const LocalReading& reading, uint64_t number, Reservation memory)
    : reading_(reading), number_(number), memory_(std::move(memory)) {}
LocalStream::~LocalStream() = default;

// Returns false if there is no memory for it yet.
absl::StatusOr<bool> LocalStream::Open(uint64_t step) {
  const StreamSteps& steps = reading_.steps;
  LoaderOptions options = steps.OptionsOf(reading_.options, number_, steps.PlaceOf(step).value_or(steps.start()));
  options.memory_bytes = reading_.memory;
  memory_ = Reservation();  // the loader reserves it
  absl::StatusOr<std::unique_ptr<Loader>> made = Loader::Create(reading_.runtime, reading_.source, options);
  if (absl::IsResourceExhausted(made.status()) && tries_++ < kMemoryTries) {
    std::this_thread::sleep_for(kLocalSlice);
    return false;
  }
  RETURN_IF_ERROR(made.status());
  loader_ = *std::move(made);
  tries_ = 0;
  is_dry_ = false;
  since_ = Clock::now();
  return true;
}

void LocalStream::Close() {
  tries_ = 0;
  if (loader_ == nullptr && memory_) return;
  loader_.reset();
  memory_ = reading_.runtime.memory().TryReserve(reading_.memory);
}

absl::StatusOr<std::optional<LocalBatch>> LocalStream::Next(uint64_t step) {
  if (loader_ == nullptr) {
    ASSIGN_OR_RETURN(const bool is_open, Open(step));
    if (!is_open) return std::nullopt;
  }
  is_dry_ = is_dry_ || !loader_->WaitReady(std::chrono::nanoseconds(0));
  if (!loader_->WaitReady(kLocalSlice)) return std::nullopt;
  ASSIGN_OR_RETURN(std::optional<Batch> batch, loader_->Next());
  if (!batch) return absl::InternalError("a stream ended before its epochs");
  LocalBatch local{.memory = batch->memory, .frame = {}, .waited = {}};
  if (std::exchange(is_dry_, false)) local.waited = Clock::now() - since_;
  local.frame = FrameOf(*std::move(batch));
  if (reading_.with_function) {  // the program applies it
    FrameFacts& facts = local.frame.facts;
    facts.values.push_back(
        {std::string(kFunctionEntry), BatchField::Kind::kBytes, std::vector<std::string>(facts.size)});
  }
  return std::optional(std::move(local));
}

}  // namespace millrace
