#include "plan/batching.h"

#include <algorithm>

#include "fmt/format.h"

namespace millrace {

absl::StatusOr<LastBatch> ParseLastBatch(std::string_view text) {
  if (text == "drop") return LastBatch::kDrop;
  if (text == "pad") return LastBatch::kPad;
  if (text == "wrap") return LastBatch::kWrap;
  if (text == "short") return LastBatch::kShort;
  return absl::InvalidArgumentError(
      fmt::format("unknown policy for the last batch \"{}\": use short, pad, drop or wrap", text));
}

absl::Status Batching::Check() const {
  if (batch < 1 || batch > kMaxBatch) {
    return absl::InvalidArgumentError(fmt::format("a batch has 1 to {} samples, not {}", kMaxBatch, batch));
  }
  if (world < 1 || world > kMaxWorld) {
    return absl::InvalidArgumentError(fmt::format("a world has 1 to {} ranks, not {}", kMaxWorld, world));
  }
  if (rank >= world) {
    return absl::InvalidArgumentError(
        fmt::format("rank {} is not in a world of {}: ranks are 0 to {}", rank, world, world - 1));
  }
  if (begun > 0 && (last != LastBatch::kPad || begun >= batch * world))
    return absl::InvalidArgumentError(fmt::format("a step that has begun with {} samples", begun));
  if (samples == 0) return absl::InvalidArgumentError("an epoch without samples has no batches");
  if (last == LastBatch::kDrop && samples < batch * world) {
    return absl::InvalidArgumentError(
        fmt::format("an epoch of {} samples has no full step of {} ranks x {} samples, and the last batch is dropped: "
                    "use smaller batches, or short, pad or wrap",
                    samples, world, batch));
  }
  return absl::OkStatus();
}

uint64_t Batching::StepsFrom(uint64_t consumed) const {
  if (consumed >= samples) return 0;
  if (consumed == 0 && begun > 0) return 1 + StepsFrom(After(0));
  const uint64_t left = samples - consumed;
  const uint64_t step = batch * world;
  return left / step + (last != LastBatch::kDrop && left % step != 0 ? 1 : 0);
}

uint64_t Batching::FirstPosition(uint64_t consumed) const {
  return consumed + (rank + world - consumed % world) % world;
}

uint64_t Batching::Taken(uint64_t consumed) const {
  const uint64_t first = FirstPosition(consumed);
  uint64_t end = samples;
  if (consumed == 0 && begun > 0) end = std::min(samples, StepSize(0));
  return first >= end ? 0 : std::min(batch, (end - first + world - 1) / world);
}

uint64_t Batching::Rows(uint64_t consumed) const {
  if (last != LastBatch::kShort || consumed >= samples) return batch;
  return std::min(batch, (samples - consumed + world - 1) / world);
}

Batching::Slot Batching::At(uint64_t consumed, uint64_t row) const {
  const uint64_t position = FirstPosition(consumed) + row * world;
  if (consumed == 0 && begun > 0 && position >= StepSize(0)) return {samples, true};
  if (position < samples) return {position, false};
  if (repeats()) return {(position - samples) % samples, true};
  return {samples, true};
}

uint64_t Batching::End(uint64_t consumed) const {
  return last == LastBatch::kDrop ? consumed + StepsFrom(consumed) * batch * world : samples;
}

uint64_t Batching::After(uint64_t consumed) const {
  const uint64_t step = StepSize(consumed);
  const uint64_t next = samples - consumed <= step ? samples : consumed + step;
  return last == LastBatch::kDrop && samples - next < step ? samples : next;
}

}  // namespace millrace
