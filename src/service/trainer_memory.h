#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "pipeline/loader_plan.h"
#include "service/step_board.h"
#include "service/stream_steps.h"

namespace millrace {

/// Batches of one stream that are in flight at most, and of all streams: each has a connection, thus an open file here
/// and there.
inline constexpr uint64_t kMaxInFlightOfStream = 48;
inline constexpr uint64_t kMaxInFlight = 256;

/// Says what workers do with batches before they send them.
struct WorkerWork {
  bool functions = false;  // a function is applied to their samples
  bool compress = false;
};

/// Says how the memory of a trainer is divided.
struct TrainerMemory {
  uint64_t slots = 0;
  uint64_t window = 0;  // batches of a stream in flight, at first,
  uint64_t widest = 0;  // and at most, if the way is long
  uint64_t frame_limit = 0;
  uint64_t result_limit = 0;       // of what a function makes of a stream's batch
  size_t free_buffers = SIZE_MAX;  // that are kept for batches to come
  uint64_t worker_memory = 0;      // of the loader that a worker makes for a stream
  uint64_t claim = 0;              // what a stream takes of a worker in all
  uint64_t ring = 0;               // bytes of the slots, and of what belongs to their rows
  uint64_t frames = 0;             // of all batches on their way
  BoardValues values;              // of rows that have come
  uint64_t local = 0;              // of one stream that this process decodes

  uint64_t of_rows() const { return frames + values.ahead + values.of_step; }
};

/// Describes the memory that is divided between the streams of a trainer, and their needs.
struct MemoryFacts {
  uint64_t memory = 0;
  uint64_t streams = 1;
  uint64_t slot_bytes = 0;          // of a batch
  uint64_t most_slots = 0;          // that the trainer's own loader would have
  uint64_t frame_bytes = 0;         // of what most batches of a stream take on their way
  uint64_t frame_values_bytes = 0;  // of them: values
};

/// Describes a way to divide memory.
struct MemoryWish {
  uint64_t slots = 0;
  uint64_t window = 0;
  uint64_t widest = 0;
  uint64_t values_ahead = 0;
  friend bool operator==(const MemoryWish&, const MemoryWish&) = default;
};

/// Returns ways to divide memory, the best one first; the first one that leaves enough for decoding here is taken. They
/// give things up in this order:
///   - the room for a long network path: half of it, a quarter, and so on, until it is the usual window;
///   - the slots for it;
///   - the values of rows that come early;
///   - all slots except two, and all batches of a stream in flight except one.
/// If not even that fits, there have to be fewer streams: with fewer, workers may be left without a stream.
std::vector<MemoryWish> WishesOf(const MemoryFacts& facts);

/// Returns ResourceExhausted if so many streams do not fit. Each stream may have to be decoded here, so all have memory
/// for it.
absl::StatusOr<TrainerMemory> DivideMemory(const Source& source, const LoaderPlan& plan, const StreamSteps& steps,
                                           const WorkerWork& work);

/// Returns a budget, larger than that of the plan by as little as a quarter, in which one stream fits; nullopt if there
/// is none.
std::optional<uint64_t> EnoughMemory(const Source& source, const LoaderPlan& plan, const WorkerWork& work);

}  // namespace millrace
