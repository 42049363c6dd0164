#include "service/service_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/crypto.h"
#include "base/size.h"
#include "service/membership.h"
#include "service/trainer_stream.h"

namespace millrace {

namespace {

constexpr uint64_t kLeastWorkerMemory = uint64_t{64} << 20;
// Batches of a stream in flight: one is decoded while others are sent; more, if the way is long.
constexpr uint64_t kMostWindow = 3;
constexpr uint64_t kWidestWindow = 48;
constexpr uint64_t kMostInFlight = 256;  // of all streams: each has a connection, thus an open file here and there
constexpr uint64_t kLeastSlots = 2;
constexpr uint64_t kMostBoardSlots = 64;
constexpr uint64_t kStreamsOfMany = 16;  // where more workers may come than there are
constexpr std::chrono::seconds kFirstWorkerPatience{5};
constexpr std::chrono::milliseconds kFirstWorkerSlice{200};
constexpr uint64_t kFactsOfRow = 1100;  // a key has up to 1,024 bytes
constexpr uint64_t kFactsOfValue = 10;
constexpr uint64_t kFactsOfBatch = uint64_t{64} << 10;
// What a function makes of a batch may take so many times what it gets, as float32 of u8 do, and this share of memory.
constexpr uint64_t kResultTimes = 4;
constexpr uint64_t kResultShare = 16;
constexpr double kValuesOfMean = 1.25;  // values of a batch, of the mean bytes of so many samples
// What is kept of a row on the board beside its slot and its values, as a Loader counts it: its key, and the texts that
// hold them.
constexpr uint64_t kBoardRow = 256;
constexpr uint64_t kBoardValue = 64;
// Results that a worker holds for a stream: one that is sent, and two copies of one that is being made.
constexpr uint64_t kResultsOfStream = 3;
// Of the memory, what may be in flight over a long way. Half a gigabyte then permits 128 MiB, which a round trip of 20
// ms carries at 6.7 GB/s.
constexpr uint64_t kWideShare = 4;

/// How the memory of a trainer is divided.
struct Shares {
  uint64_t slots = 0;
  uint64_t window = 0;
  uint64_t widest = 0;
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

/// What most batches of a stream take.
struct UsualFrame {
  uint64_t bytes = 0;
  uint64_t values = 0;  // of them, which are copied when the batch has come
};

// Also says how large one may be at most.
UsualFrame SizesOf(const Source& source, const LoaderPlan& plan, const LoaderPlan& stream,
                   const ServiceOptions& service, uint64_t streams, Shares* shares) {
  const uint64_t batch = stream.options.batch;
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
  if (service.function) {
    const uint64_t memory = plan.options.memory_bytes;
    usual.bytes = usual.values = std::max(kResultTimes * usual.bytes, memory / kResultShare / streams);
    shares->frame_limit = usual.bytes;
    shares->result_limit = shares->frame_limit - facts;
    // What is decoded here may be more: the mean says nothing of the largest samples.
    shares->values.of_step = std::max(shares->values.of_step, streams * shares->frame_limit);
  }
  // Of a batch whose values are most of it, no bytes stay when they were copied.
  if (usual.values > 0) shares->free_buffers = streams;
  return usual;
}

// ResourceExhausted if so many streams do not fit. Each stream may have to be decoded here, so all have memory for it.
absl::StatusOr<Shares> Divide(const Source& source, const LoaderPlan& plan, const StreamSteps& steps,
                              const ServiceOptions& service) {
  const uint64_t memory = plan.options.memory_bytes;
  const uint64_t streams = steps.streams();
  Shares shares;
  LoaderOptions options = steps.OptionsOf(plan.options, 0, steps.start());
  shares.worker_memory = options.memory_bytes = std::max(memory / streams, std::min(memory, kLeastWorkerMemory));
  ASSIGN_OR_RETURN(const LoaderPlan stream, Settle(source, options));
  const UsualFrame usual = SizesOf(source, plan, stream, service, streams, &shares);
  shares.claim = shares.worker_memory + kResultsOfStream * shares.result_limit;
  const uint64_t values_of_row = CountValues(plan.fields) + (service.function ? 1 : 0);
  const uint64_t slot = plan.slot_bytes + plan.batching.batch * (kBoardRow + values_of_row * kBoardValue);

  struct Wish {
    uint64_t slots;
    uint64_t window;
    uint64_t widest;
    uint64_t ahead;
  };
  const auto leave_room = [&](const Wish& wish) -> absl::Status {
    shares.slots = wish.slots;
    shares.window = wish.window;
    shares.widest = wish.widest;
    shares.values.ahead = wish.ahead;
    shares.ring = wish.slots * slot;
    // One more, for a stream that is read from two workers, as large as it may be; and for each stream what is being
    // decompressed, and values that are being copied.
    const uint64_t of_stream = (wish.widest + (service.compress ? 2 : 1)) * usual.bytes + usual.values;
    shares.frames = streams * of_stream + shares.frame_limit;
    if (shares.ring + shares.of_rows() >= memory) return absl::ResourceExhaustedError("no memory is left for streams");
    shares.local = options.memory_bytes = (memory - shares.ring - shares.of_rows()) / streams;
    return Loader::Check(source, options);
  };
  const uint64_t slots = std::min(std::clamp<uint64_t>(memory / 4 / slot, kLeastSlots, kMostBoardSlots), plan.slots);
  const uint64_t window = std::clamp<uint64_t>(memory / 4 / streams / usual.bytes, 2, kMostWindow + 1) - 1;
  const uint64_t wide = std::min(memory / kWideShare / streams / usual.bytes, kMostInFlight / streams);
  const uint64_t ahead = std::min(memory / 8, slots * streams * usual.values);
  absl::Status fits;
  for (const Wish& wish :
       {Wish{slots, window, std::clamp(wide, window, kWidestWindow), ahead}, Wish{slots, window, window, ahead},
        Wish{slots, window, window, 0}, Wish{kLeastSlots, 1, 1, 0}}) {
    fits = leave_room(wish);
    if (!absl::IsResourceExhausted(fits)) break;
  }
  RETURN_IF_ERROR(fits);
  return shares;
}

/// The workers that there are, and who finds them.
struct FoundWorkers {
  std::vector<std::string> workers;
  std::unique_ptr<WorkerFinder> finder;
};

// What the batch and the order allow, a power of two.
uint64_t StreamsOf(const LoaderPlan& plan, const ServiceOptions& service, const FoundWorkers& found) {
  const uint64_t now = std::max<uint64_t>(1, found.workers.size() + service.local_streams);
  const bool many = found.finder->changes() || service.local_follows;
  const uint64_t some = many ? std::max(now, kStreamsOfMany) : now;
  const uint64_t wanted = service.streams != 0 ? service.streams : some;
  uint64_t streams = std::bit_ceil(std::min(wanted, ServiceOptions::kMaxStreams));
  streams = std::min(streams, uint64_t{1} << std::countr_zero(plan.batching.batch));
  if (plan.options.shuffle != Shuffle::kWindow) return streams;
  for (const OrderPolicy& policy : plan.policies) {
    const uint64_t of_lanes = std::max<uint64_t>(1, policy.lanes / plan.options.world);
    streams = std::min(streams, std::bit_floor(of_lanes));
  }
  return streams;
}

// All ranks of a job have one name, as far as the environment has one.
std::string JobName() {
  std::string job;
  for (const char* name : {"MILLRACE_JOB", "TRAINING_JOB_NAME", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"}) {
    const char* value = std::getenv(name);
    if (job.empty() && value != nullptr && std::string_view(value) != "none") job = value;
  }
  constexpr size_t kMost = 128;
  if (job.size() > kMost) job.resize(kMost);
  for (char& c : job) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) c = '?';
  }
  return job.empty() ? RandomHex(8) : job;
}

class ServiceSource final : public BatchSource {
 public:
  ServiceSource(Runtime& runtime, const Source& source, const LoaderPlan& plan, StreamSpec spec, Shares shares,
                const ServiceOptions& service, FoundWorkers found, uint64_t streams)
      : source_(source),
        options_(plan.options),
        shapes_(ShapesOf(plan)),
        steps_per_epoch_(plan.steps()),
        samples_per_epoch_(plan.batching.samples),
        steps_(plan, streams, service.function.has_value()),
        placement_(
            found.workers, streams,
            {.streams = service.local_follows ? streams : service.local_streams, .follows = service.local_follows},
            Xxh3(AsBytes(EncodeStreamSpec(spec)))),
        rows_memory_(runtime.memory().TryReserve(shares.of_rows())),
        board_(steps_, plan.layouts.front(), shares.slots, runtime.memory().TryReserve(shares.ring), shares.values,
               source.parts().size(),
               [this](std::optional<size_t> worker, Placement::Time now) { placement_.OnAwaited(worker, now); }),
        calls_(runtime, {service.token, service.tls, JobName(), shares.claim, shares.free_buffers}),
        context_{.runtime = runtime,
                 .source = source_,
                 .options = options_,
                 .steps = steps_,
                 .board = board_,
                 .placement = placement_,
                 .calls = calls_,
                 .spec = std::move(spec),
                 .window = shares.window,
                 .widest = shares.widest,
                 .frame_limit = shares.frame_limit,
                 .worker_memory = shares.worker_memory,
                 .local_memory = shares.local} {
    for (uint64_t stream = 0; stream < streams; ++stream) {
      streams_.push_back(std::make_unique<TrainerStream>(context_, stream, runtime.memory().TryReserve(shares.local)));
    }
    if (found.finder->changes()) membership_.emplace(std::move(found.finder), placement_);
  }
  ~ServiceSource() override {
    board_.Stop();
    for (const std::unique_ptr<TrainerStream>& stream : streams_) stream->Stop();
    streams_.clear();
  }

  absl::StatusOr<std::optional<Batch>> Next() override { return board_.Next(); }
  bool WaitReady(std::chrono::nanoseconds limit) override { return board_.WaitReady(limit); }
  LoaderReport report() const override {
    LoaderReport report = board_.report();
    std::vector<uint64_t> rows = board_.rows();
    report.workers = placement_.report();  // later: nobody has rows who is not in it
    rows.resize(report.workers.size() + 1);
    for (size_t worker = 0; worker < report.workers.size(); ++worker) {
      report.workers[worker].rows = rows[SourceOfWorker(worker)];
    }
    report.workers.push_back({.worker = "local", .rows = rows[kLocalSource]});
    return report;
  }
  const std::vector<BatchShape>& shapes() const override { return shapes_; }
  uint64_t steps_per_epoch() const override { return steps_per_epoch_; }
  uint64_t samples_per_epoch() const override { return samples_per_epoch_; }

 private:
  const Source source_;
  const LoaderOptions options_;
  const std::vector<BatchShape> shapes_;
  const uint64_t steps_per_epoch_;
  const uint64_t samples_per_epoch_;
  const StreamSteps steps_;
  Placement placement_;
  const Reservation rows_memory_;  // that have come, or are on their way
  StepBoard board_;
  WorkerCalls calls_;
  const StreamContext context_;
  std::optional<Membership> membership_;
  std::vector<std::unique_ptr<TrainerStream>> streams_;
};

absl::StatusOr<FoundWorkers> FindFirst(Runtime& runtime, const ServiceOptions& service) {
  if (service.workers.empty()) return absl::InvalidArgumentError("there is no worker; name one at least");
  std::vector<WorkerPlace> places;
  std::set<std::string> seen;
  for (const std::string& worker : service.workers) {
    if (!seen.insert(worker).second) {
      return absl::InvalidArgumentError(fmt::format("the worker {} is named twice", worker));
    }
    ASSIGN_OR_RETURN(places.emplace_back(), ParseWorkerPlace(worker));
  }
  FoundWorkers found;
  ASSIGN_OR_RETURN(found.finder, WorkerFinder::Make(runtime, std::move(places)));
  const auto deadline = std::chrono::steady_clock::now() + kFirstWorkerPatience;
  for (;;) {
    ASSIGN_OR_RETURN(found.workers, found.finder->Find());
    if (!found.workers.empty() || std::chrono::steady_clock::now() > deadline) return found;
    std::this_thread::sleep_for(kFirstWorkerSlice);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<BatchSource>> FeedFromWorkers(Runtime& runtime, const Source& source,
                                                             LoaderOptions options, const ServiceOptions& service) {
  absl::StatusOr<LoaderPlan> plan = Settle(source, std::move(options));
  if (!plan.ok()) return Annotate(plan.status(), source.uri());
  ASSIGN_OR_RETURN(StreamSpec spec, SpecOf(source, plan->options));
  spec.compress = service.compress;
  ASSIGN_OR_RETURN(FoundWorkers found, FindFirst(runtime, service));
  uint64_t streams = StreamsOf(*plan, service, found);
  absl::StatusOr<Shares> shares = Divide(source, *plan, StreamSteps(*plan, streams), service);
  while (absl::IsResourceExhausted(shares.status()) && streams > 1) {
    streams /= 2;
    shares = Divide(source, *plan, StreamSteps(*plan, streams), service);
  }
  const uint64_t memory = plan->options.memory_bytes;
  if (absl::IsResourceExhausted(shares.status())) {
    return absl::ResourceExhaustedError(fmt::format(
        "a memory budget of {} is too small for batches from workers, beside what it takes to go on without them; {} "
        "would do, or a smaller batch",
        FormatSize(memory), FormatSize(4 * memory)));
  }
  RETURN_IF_ERROR(shares.status());
  if (service.function) {
    spec.function = *service.function;
    spec.function->most_bytes = shares->result_limit;
    spec.function->seed = plan->options.seed;
    spec.function->is_mix = plan->options.mix.has_value();
    spec.function->rank = plan->options.rank;
    spec.function->world = plan->options.world;
    spec.function->streams = streams;
  }
  if (service.local_streams > streams) {
    return absl::InvalidArgumentError(fmt::format(
        "{} local streams, but a batch of {} divides into {} here (a power of two, within the lanes of the order and "
        "the memory budget); choose fewer, or another batch",
        service.local_streams, plan->options.batch, streams));
  }
  if (!runtime.memory().TryReserve(memory)) {
    return absl::ResourceExhaustedError(
        fmt::format("a loader of {} does not fit into the process's budget of {}, of which {} are taken (other "
                    "loaders, batches that the program holds)",
                    FormatSize(memory), FormatSize(runtime.memory().limit()), FormatSize(runtime.memory().used())));
  }
  try {
    return std::make_unique<ServiceSource>(runtime, source, *plan, std::move(spec), *shares, service, std::move(found),
                                           streams);
  } catch (const std::exception& error) {  // std::bad_alloc, or no thread
    return absl::ResourceExhaustedError(fmt::format(
        "the system refuses a memory budget of {} ({}); choose a smaller one", FormatSize(memory), error.what()));
  }
}

}  // namespace millrace
