#include "service/service_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <exception>
#include <set>
#include <utility>

#include "base/crypto.h"
#include "base/size.h"
#include "service/trainer_stream.h"

namespace millrace {

namespace {

constexpr uint64_t kLeastWorkerMemory = uint64_t{64} << 20;
constexpr uint64_t kMostWindow = 3;  // batches of a stream in flight: one is decoded while others are sent
constexpr uint64_t kMostBoardSlots = 64;
constexpr uint64_t kFactsOfRow = 1100;  // a key has up to 1,024 bytes
constexpr uint64_t kFactsOfValue = 10;
constexpr uint64_t kFactsOfBatch = uint64_t{64} << 10;

/// How the memory of a trainer is divided.
struct Shares {
  uint64_t slots = 0;
  uint64_t window = 0;
  uint64_t frame_limit = 0;
  uint64_t worker_memory = 0;
  uint64_t ring = 0;    // bytes of the slots
  uint64_t frames = 0;  // of all batches on their way
  uint64_t local = 0;   // of one stream that this process decodes
};

// ResourceExhausted if so many streams do not fit. Each stream may have to be decoded here, so all have memory for it.
absl::StatusOr<Shares> Divide(const Source& source, const LoaderPlan& plan, const StreamSteps& steps) {
  const uint64_t memory = plan.options.memory_bytes;
  const uint64_t streams = steps.streams();
  Shares shares;
  shares.slots = std::clamp<uint64_t>(memory / 4 / std::max<uint64_t>(1, plan.slot_bytes), 2, kMostBoardSlots);
  shares.slots = std::min(shares.slots, plan.slots);
  shares.ring = shares.slots * plan.slot_bytes;
  LoaderOptions options = steps.OptionsOf(plan.options, 0, steps.start());
  shares.worker_memory = options.memory_bytes = std::max(memory / streams, std::min(memory, kLeastWorkerMemory));
  ASSIGN_OR_RETURN(const LoaderPlan stream, Settle(source, options));
  shares.frame_limit =
      stream.slot_bytes + kFactsOfBatch + options.batch * (kFactsOfRow + CountValues(stream.fields) * kFactsOfValue);
  // A value that replaces another one may be larger.
  if (stream.value_bytes > 0) shares.frame_limit += stream.value_bytes + source.max_item_bytes();
  const uint64_t fitting = memory / 4 / streams / shares.frame_limit;
  shares.window = std::clamp<uint64_t>(fitting, 2, kMostWindow + 1) - 1;
  shares.frames = streams * (shares.window + 1) * shares.frame_limit;
  if (shares.ring + shares.frames >= memory) return absl::ResourceExhaustedError("no memory is left for streams");
  shares.local = options.memory_bytes = (memory - shares.ring - shares.frames) / streams;
  RETURN_IF_ERROR(Loader::Check(source, options));
  return shares;
}

// What the batch and the order allow, a power of two.
uint64_t StreamsOf(const LoaderPlan& plan, const ServiceOptions& service) {
  const uint64_t named = service.workers.size() + service.local_streams;
  const uint64_t wanted = service.streams != 0 ? service.streams : named;
  uint64_t streams = std::bit_ceil(std::min(wanted, ServiceOptions::kMaxStreams));
  streams = std::min(streams, uint64_t{1} << std::countr_zero(plan.batching.batch));
  if (plan.options.shuffle != Shuffle::kWindow) return streams;
  for (const OrderPolicy& policy : plan.policies) {
    const uint64_t of_lanes = std::max<uint64_t>(1, policy.lanes / plan.options.world);
    streams = std::min(streams, std::bit_floor(of_lanes));
  }
  return streams;
}

class ServiceSource final : public BatchSource {
 public:
  ServiceSource(Runtime& runtime, const Source& source, const LoaderPlan& plan, StreamSpec spec, Shares shares,
                const ServiceOptions& service, std::vector<HttpEndpoint> endpoints, uint64_t streams)
      : source_(source),
        options_(plan.options),
        shapes_(ShapesOf(plan)),
        steps_per_epoch_(plan.steps()),
        samples_per_epoch_(plan.batching.samples),
        endpoints_(std::move(endpoints)),
        steps_(plan, streams),
        placement_(service.workers, streams, streams - service.local_streams, Xxh3(AsBytes(EncodeStreamSpec(spec)))),
        frame_memory_(runtime.memory().TryReserve(shares.frames)),
        board_(steps_, plan.layouts.front(), shares.slots, runtime.memory().TryReserve(shares.ring),
               endpoints_.size() + 1, source.parts().size()),
        calls_(runtime, service.token),
        context_{.runtime = runtime,
                 .source = source_,
                 .options = options_,
                 .steps = steps_,
                 .board = board_,
                 .placement = placement_,
                 .calls = calls_,
                 .endpoints = endpoints_,
                 .spec = std::move(spec),
                 .window = shares.window,
                 .frame_limit = shares.frame_limit,
                 .worker_memory = shares.worker_memory,
                 .local_memory = shares.local} {
    for (uint64_t stream = 0; stream < streams; ++stream) {
      streams_.push_back(std::make_unique<TrainerStream>(context_, stream, stream < service.local_streams,
                                                         runtime.memory().TryReserve(shares.local)));
    }
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
    report.workers = placement_.report();
    report.workers.push_back({.worker = "local"});
    const std::vector<uint64_t> rows = board_.rows();
    for (size_t source = 0; source < rows.size(); ++source) report.workers[source].rows = rows[source];
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
  const std::vector<HttpEndpoint> endpoints_;
  const StreamSteps steps_;
  Placement placement_;
  const Reservation frame_memory_;
  StepBoard board_;
  WorkerCalls calls_;
  const StreamContext context_;
  std::vector<std::unique_ptr<TrainerStream>> streams_;
};

absl::StatusOr<std::vector<HttpEndpoint>> EndpointsOf(const std::vector<std::string>& workers) {
  if (workers.empty()) return absl::InvalidArgumentError("there is no worker; name one at least");
  std::vector<HttpEndpoint> endpoints;
  std::set<std::string> seen;
  for (const std::string& worker : workers) {
    if (!seen.insert(worker).second) {
      return absl::InvalidArgumentError(fmt::format("the worker {} is named twice", worker));
    }
    ASSIGN_OR_RETURN(endpoints.emplace_back(), ParseWorkerAddress(worker));
  }
  return endpoints;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BatchSource>> FeedFromWorkers(Runtime& runtime, const Source& source,
                                                             LoaderOptions options, const ServiceOptions& service) {
  ASSIGN_OR_RETURN(std::vector<HttpEndpoint> endpoints, EndpointsOf(service.workers));
  absl::StatusOr<LoaderPlan> plan = Settle(source, std::move(options));
  if (!plan.ok()) return Annotate(plan.status(), source.uri());
  ASSIGN_OR_RETURN(StreamSpec spec, SpecOf(source, plan->options));
  uint64_t streams = StreamsOf(*plan, service);
  absl::StatusOr<Shares> shares = Divide(source, *plan, StreamSteps(*plan, streams));
  while (absl::IsResourceExhausted(shares.status()) && streams > 1) {
    streams /= 2;
    shares = Divide(source, *plan, StreamSteps(*plan, streams));
  }
  const uint64_t memory = plan->options.memory_bytes;
  if (absl::IsResourceExhausted(shares.status())) {
    return absl::ResourceExhaustedError(fmt::format(
        "a memory budget of {} is too small for batches from workers, beside what it takes to go on without them; {} "
        "would do, or a smaller batch",
        FormatSize(memory), FormatSize(4 * memory)));
  }
  RETURN_IF_ERROR(shares.status());
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
    return std::make_unique<ServiceSource>(runtime, source, *plan, std::move(spec), *shares, service,
                                           std::move(endpoints), streams);
  } catch (const std::exception& error) {  // std::bad_alloc, or no thread
    return absl::ResourceExhaustedError(fmt::format(
        "the system refuses a memory budget of {} ({}); choose a smaller one", FormatSize(memory), error.what()));
  }
}

}  // namespace millrace
