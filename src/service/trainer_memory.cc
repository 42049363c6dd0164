#include "service/trainer_memory.h"

#include <algorithm>
#include <utility>

#include "pipeline/loader.h"

namespace millrace {

namespace {

constexpr uint64_t kLeastWorkerMemory = uint64_t{64} << 20;
// Batches of a stream in flight: one is decoded while others are sent; more, if the way is long.
constexpr uint64_t kUsualWindow = 3;
constexpr uint64_t kLeastBoardSlots = 2;
constexpr uint64_t kMostBoardSlots = 64;
// These are beside the slots into which batches in flight are received. The program has one, and some wait for the rows
// of other streams. A batch that finds no slot is received elsewhere, and copied.
constexpr uint64_t kSpareSlots = 4;
// Slots, and the usual windows, may take these parts of the memory.
constexpr uint64_t kSlotsShare = 4;
constexpr uint64_t kWindowShare = 4;
// Batches in flight over a long path may take this part. Half a gigabyte then permits 128 MiB, which a round trip of 20
// ms carries at 6.7 GB/s.
constexpr uint64_t kWideShare = 4;
constexpr uint64_t kAheadShare = 8;     // of values of rows that come early
constexpr uint64_t kFactsOfRow = 1100;  // a key has up to 1,024 bytes
constexpr uint64_t kFactsOfValue = 10;
constexpr uint64_t kFactsOfBatch = uint64_t{64} << 10;
// The results of a function for a batch may take so many times the bytes of its input, as float32 of u8 do, and this
// share of memory.
constexpr uint64_t kResultTimes = 4;
constexpr uint64_t kResultShare = 16;
constexpr double kValuesOfMean = 1.25;  // values of a batch, of the mean bytes of so many samples
// The board keeps this much of a row beside its slot and its values, as a Loader counts it: its key, and the texts that
// hold them.
constexpr uint64_t kBoardRow = 256;
constexpr uint64_t kBoardValue = 64;
// A worker holds these results for a stream: one that is sent, and two copies of one that is being made.
constexpr uint64_t kResultsOfStream = 3;
// No more memory than this is looked at.
constexpr uint64_t kMostMemory = uint64_t{1} << 50;

/// Holds the sizes of most batches of a stream.
struct UsualFrame {
  uint64_t bytes = 0;
  uint64_t values = 0;  // of them, which are copied when the batch has come
};

// Also says how large one may be at most.
UsualFrame SizesOf(const Source& source, const LoaderPlan& plan, const LoaderPlan& stream, const WorkerWork& work,
                   uint64_t streams, TrainerMemory* shares) {
  const uint64_t batch = stream.options.batch;
  const uint64_t memory = plan.options.memory_bytes;
  const uint64_t facts = kFactsOfBatch + batch * (kFactsOfRow + (CountValues(stream.fields) + 1) * kFactsOfValue);
  shares->frame_limit = stream.slot_bytes + facts;
  UsualFrame usual{.bytes = shares->frame_limit};
  if (stream.value_bytes > 0) {
    // Values are what the bytes of their samples are, or nearly.
    usual.values = static_cast<uint64_t>(kValuesOfMean * source.mean_item_bytes()) * batch;
    // A value that replaces another one may be larger.
    shares->frame_limit += stream.value_bytes + source.max_item_bytes();
    usual.bytes = std::min(shares->frame_limit, usual.bytes + usual.values);
    shares->values.of_step = plan.value_bytes + source.max_item_bytes();  // that of a Loader
  }
  shares->values.memory = memory;
  if (work.functions) {
    usual.bytes = usual.values = std::max(kResultTimes * usual.bytes, memory / kResultShare / streams);
    shares->frame_limit = usual.bytes;
    shares->result_limit = shares->frame_limit - facts;
    // Batches that are decoded here may be larger: the mean says nothing of the largest samples.
    shares->values.of_step = std::max(shares->values.of_step, streams * shares->frame_limit);
    shares->values.share = kResultShare;
  }
  // If values are most of a batch, its bytes are released after the values were copied.
  if (usual.values > 0) shares->free_buffers = streams;
  return usual;
}

}  // namespace

std::vector<MemoryWish> WishesOf(const MemoryFacts& facts) {
  const auto [memory, streams, slot, most_slots, frame, frame_values] = facts;
  const uint64_t slots =
      std::min(std::clamp<uint64_t>(memory / kSlotsShare / slot, kLeastBoardSlots, kMostBoardSlots), most_slots);
  const uint64_t window = std::clamp<uint64_t>(memory / kWindowShare / streams / frame, 2, kUsualWindow + 1) - 1;
  const uint64_t ahead = std::min(memory / kAheadShare, slots * streams * frame_values);
  const uint64_t most = std::clamp(kMaxInFlight / streams, window, kMaxInFlightOfStream);
  std::vector<MemoryWish> wishes;
  for (uint64_t share = kWideShare;; share *= 2) {
    const uint64_t widest = std::clamp(memory / share / streams / frame, window, most);
    wishes.push_back(
        {std::clamp(widest + kSpareSlots, slots, std::max(slots, kMostBoardSlots)), window, widest, ahead});
    if (widest == window) break;
  }
  if (wishes.back().slots > slots) wishes.push_back({slots, window, window, ahead});
  wishes.push_back({slots, window, window, 0});
  wishes.push_back({kLeastBoardSlots, 1, 1, 0});
  return wishes;
}

absl::StatusOr<TrainerMemory> DivideMemory(const Source& source, const LoaderPlan& plan, const StreamSteps& steps,
                                           const WorkerWork& work) {
  const uint64_t memory = plan.options.memory_bytes;
  const uint64_t streams = steps.streams();
  TrainerMemory shares;
  LoaderOptions options = steps.OptionsOf(plan.options, 0, steps.start());
  shares.worker_memory = options.memory_bytes = std::max(memory / streams, std::min(memory, kLeastWorkerMemory));
  ASSIGN_OR_RETURN(const LoaderPlan stream, Settle(source, options));
  const UsualFrame usual = SizesOf(source, plan, stream, work, streams, &shares);
  shares.claim = shares.worker_memory + kResultsOfStream * shares.result_limit;
  const uint64_t values_of_row = CountValues(plan.fields) + (work.functions ? 1 : 0);
  const uint64_t slot = plan.slot_bytes + plan.batching.batch * (kBoardRow + values_of_row * kBoardValue);

  const auto leave_room = [&](const MemoryWish& wish) -> absl::Status {
    shares.slots = wish.slots;
    shares.window = wish.window;
    shares.widest = wish.widest;
    shares.values.ahead = wish.values_ahead;
    shares.ring = wish.slots * slot;
    // One more batch is for a stream that is read from two workers, as large as it may be. Each stream also needs
    // memory for what is being decompressed, and for values that are being copied.
    const uint64_t of_stream = (wish.widest + (work.compress ? 2 : 1)) * usual.bytes + usual.values;
    shares.frames = streams * of_stream + shares.frame_limit;
    if (shares.ring + shares.of_rows() >= memory) return absl::ResourceExhaustedError("no memory is left for streams");
    shares.local = options.memory_bytes = (memory - shares.ring - shares.of_rows()) / streams;
    return Loader::Check(source, options);
  };
  absl::Status fits;
  for (const MemoryWish& wish : WishesOf({.memory = memory,
                                .streams = streams,
                                .slot_bytes = slot,
                                .most_slots = plan.slots,
                                .frame_bytes = usual.bytes,
                                .frame_values_bytes = usual.values})) {
    fits = leave_room(wish);
    if (!absl::IsResourceExhausted(fits)) break;
  }
  RETURN_IF_ERROR(fits);
  return shares;
}

std::optional<uint64_t> EnoughMemory(const Source& source, const LoaderPlan& plan, const WorkerWork& work) {
  LoaderOptions options = plan.options;
  while (options.memory_bytes < kMostMemory) {
    options.memory_bytes += options.memory_bytes / 4 + 1;
    const absl::StatusOr<LoaderPlan> larger = Settle(source, options);
    if (larger.ok() && DivideMemory(source, *larger, StreamSteps(*larger, 1), work).ok()) return options.memory_bytes;
  }
  return std::nullopt;
}

}  // namespace millrace
