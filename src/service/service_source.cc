#include "service/service_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <exception>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/crypto.h"
#include "base/process.h"
#include "base/size.h"
#include "service/membership.h"
#include "service/trainer_memory.h"
#include "service/trainer_stream.h"

namespace millrace {

namespace {

constexpr uint64_t kStreamsOfMany = 16;  // where more workers may come than there are
constexpr std::chrono::seconds kFirstWorkerWait{5};
constexpr std::chrono::milliseconds kFirstWorkerSlice{200};

/// Holds the workers that there are, and their finder.
struct FoundWorkers {
  std::vector<std::string> workers;
  WorkerFinder finder;
};

// Returns as many streams as wanted, if the batch and the order allow them: a power of two.
uint64_t StreamsWithin(const LoaderPlan& plan, uint64_t wanted) {
  uint64_t streams = std::bit_ceil(std::min(wanted, ServiceOptions::kMaxStreams));
  streams = std::min(streams, uint64_t{1} << std::countr_zero(plan.batching.batch));
  if (plan.options.shuffle != Shuffle::kWindow) return streams;
  for (const OrderPolicy& policy : plan.policies) {
    const uint64_t of_lanes = std::max<uint64_t>(1, policy.lanes / plan.options.world);
    streams = std::min(streams, std::bit_floor(of_lanes));
  }
  return streams;
}

uint64_t StreamsOf(const LoaderPlan& plan, const ServiceOptions& service, const FoundWorkers& found) {
  const uint64_t now = std::max<uint64_t>(1, found.workers.size() + service.local_streams);
  const bool many = found.finder.changes() || service.local_follows;
  const uint64_t some = many ? std::max(now, kStreamsOfMany) : now;
  return StreamsWithin(plan, service.streams != 0 ? service.streams : some);
}

absl::Status CheckLocalStreams(const LoaderPlan& plan, const ServiceOptions& service, uint64_t streams) {
  if (service.local_streams <= streams) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "{} local streams, but a batch of {} divides into {} here (a power of two, within the lanes of the order and "
      "the memory budget); choose fewer, or another batch",
      service.local_streams, plan.options.batch, streams));
}

// All ranks of a job have one name, as far as the environment has one.
std::string JobName() {
  std::string job;
  for (const char* name : {"MILLRACE_JOB", "TRAINING_JOB_NAME", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"}) {
    if (const std::string value = EnvironmentValue(name); job.empty() && value != "none") job = value;
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
  ServiceSource(Runtime& runtime, const Source& source, const LoaderPlan& plan, StreamSpec spec,
                const TrainerMemory& shares, const ServiceOptions& service, FoundWorkers found, uint64_t streams)
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
    try {
      for (uint64_t stream = 0; stream < streams; ++stream) {
        streams_.push_back(
            std::make_unique<TrainerStream>(context_, stream, runtime.memory().TryReserve(shares.local)));
      }
      if (found.finder.changes()) membership_.emplace(std::move(found.finder), placement_);
    } catch (...) {  // no thread; those that run may wait for the board
      EndStreams();
      throw;
    }
  }
  ~ServiceSource() override { EndStreams(); }

  absl::StatusOr<std::optional<Batch>> Next() override { return board_.outlet().Next(); }
  bool WaitReady(std::chrono::nanoseconds limit) override { return board_.outlet().WaitReady(limit); }
  LoaderReport report() const override {
    LoaderReport report = board_.outlet().report();
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
  void EndStreams() {
    board_.Stop();
    for (const std::unique_ptr<TrainerStream>& stream : streams_) stream->Stop();
    streams_.clear();
  }

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

absl::StatusOr<std::vector<WorkerPlace>> PlacesOf(const ServiceOptions& service) {
  if (service.workers.empty()) return absl::InvalidArgumentError("there is no worker; name one at least");
  std::vector<WorkerPlace> places;
  std::set<std::string> seen;
  for (const std::string& worker : service.workers) {
    if (!seen.insert(worker).second) {
      return absl::InvalidArgumentError(fmt::format("the worker {} is named twice", worker));
    }
    ASSIGN_OR_RETURN(places.emplace_back(), ParseWorkerPlace(worker));
  }
  return places;
}

absl::StatusOr<FoundWorkers> FindFirst(const ServiceOptions& service) {
  ASSIGN_OR_RETURN(std::vector<WorkerPlace> places, PlacesOf(service));
  FoundWorkers found{.finder = WorkerFinder(std::move(places))};
  const auto deadline = std::chrono::steady_clock::now() + kFirstWorkerWait;
  for (;;) {
    ASSIGN_OR_RETURN(found.workers, found.finder.Find());
    if (!found.workers.empty() || std::chrono::steady_clock::now() > deadline) return found;
    std::this_thread::sleep_for(kFirstWorkerSlice);
  }
}

}  // namespace

absl::Status CheckFeedFromWorkers(const Source& source, LoaderOptions options, const ServiceOptions& service) {
  absl::StatusOr<LoaderPlan> plan = Settle(source, std::move(options));
  if (!plan.ok()) return Annotate(plan.status(), source.uri());
  RETURN_IF_ERROR(SpecOf(source, plan->options).status());
  RETURN_IF_ERROR(PlacesOf(service).status());
  return CheckLocalStreams(*plan, service, StreamsWithin(*plan, ServiceOptions::kMaxStreams));
}

absl::StatusOr<std::unique_ptr<BatchSource>> FeedFromWorkers(Runtime& runtime, const Source& source,
                                                             LoaderOptions options, const ServiceOptions& service) {
  absl::StatusOr<LoaderPlan> plan = Settle(source, std::move(options));
  if (!plan.ok()) return Annotate(plan.status(), source.uri());
  ASSIGN_OR_RETURN(StreamSpec spec, SpecOf(source, plan->options));
  spec.compress = service.compress;
  ASSIGN_OR_RETURN(FoundWorkers found, FindFirst(service));
  uint64_t streams = StreamsOf(*plan, service, found);
  const WorkerWork work{.functions = service.function.has_value(), .compress = service.compress};
  absl::StatusOr<TrainerMemory> shares = DivideMemory(source, *plan, StreamSteps(*plan, streams), work);
  while (absl::IsResourceExhausted(shares.status()) && streams > 1) {
    streams /= 2;
    shares = DivideMemory(source, *plan, StreamSteps(*plan, streams), work);
  }
  const uint64_t memory = plan->options.memory_bytes;
  if (absl::IsResourceExhausted(shares.status())) {
    const std::optional<uint64_t> enough = EnoughMemory(source, *plan, work);
    return absl::ResourceExhaustedError(fmt::format(
        "a memory budget of {} is too small for batches from workers, beside the memory to continue without them; {}",
        FormatSize(memory),
        enough ? fmt::format("{} MiB would do, or a smaller batch", (*enough >> 20) + 1) : "choose a smaller batch"));
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
  RETURN_IF_ERROR(CheckLocalStreams(*plan, service, streams));
  if (!runtime.memory().TryReserve(memory)) return NoRoomForLoader(memory, runtime.memory());
  try {
    return std::make_unique<ServiceSource>(runtime, source, *plan, std::move(spec), *shares, service, std::move(found),
                                           streams);
  } catch (const std::exception& error) {  // std::bad_alloc, or no thread
    return LoaderRefused(memory, error);
  }
}

}  // namespace millrace
