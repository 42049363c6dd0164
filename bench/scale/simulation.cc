#include "simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "pipeline/loader_plan.h"
#include "store/pieces.h"

namespace millrace {

namespace {

using Nanos = EventQueue::Nanos;

constexpr uint64_t kListedObjects = 10'000;  // opening looks at no more (docs/python.md)
constexpr uint64_t kObjectsOfPage = 1000;
constexpr uint64_t kPageBytes = 250'000;
constexpr uint64_t kIndexPiecesInFlight = 8;

/// The requests for opening a data set: each host reads the index once, and each process makes the listing.
class Opening {
 public:
  Opening(EventQueue* events, SimulatedClient* client, const Dataset& dataset, bool copies, std::function<void()> done)
      : client_(client), dataset_(dataset), done_(std::move(done)) {
    const uint64_t objects = dataset.index().objects();
    pages_ = objects > kListedObjects ? 0 : (objects + kObjectsOfPage - 1) / kObjectsOfPage;
    pieces_ = copies ? (dataset.index().file_bytes() + kPieceBytes - 1) / kPieceBytes : 0;
    events->After(Nanos{0}, [this] { Begin(); });
  }
  uint64_t requests() const { return requests_; }

 private:
  // One after another: HEAD of the index, its pieces, pages of the listing.
  void Begin() {
    Ask("HEAD", dataset_.StoreKey(".millrace/index"), "", 0, [this] { CopyIndex(); });
  }
  void CopyIndex() {
    if (pieces_ == 0) return ListNext();
    for (uint64_t i = 0; i < std::min(kIndexPiecesInFlight, pieces_); ++i) NextPiece();
  }
  void NextPiece() {
    if (asked_ == pieces_) return;
    const uint64_t from = asked_++ * kPieceBytes;
    const uint64_t bytes = std::min(kPieceBytes, dataset_.index().file_bytes() - from);
    Ask("GET", dataset_.StoreKey(".millrace/index"), fmt::format("bytes={}-{}", from, from + bytes - 1), bytes, [this] {
      if (++copied_ == pieces_) return ListNext();
      NextPiece();
    });
  }
  void ListNext() {
    if (listed_ == pages_) return done_();
    Ask("LIST", dataset_.StoreKey(""), fmt::format("{}", listed_++), kPageBytes, [this] { ListNext(); });
  }
  void Ask(const char* method, std::string key, std::string part, uint64_t bytes, std::function<void()> done) {
    ++requests_;
    const std::string& bucket = dataset_.store().traits().bucket;
    client_->Send({.method = method,
                   .bucket = bucket.empty() ? "scale" : bucket,
                   .key = std::move(key),
                   .part = std::move(part),
                   .bytes = bytes,
                   .done = std::move(done)});
  }

  SimulatedClient* const client_;
  const Dataset& dataset_;
  const std::function<void()> done_;
  uint64_t pages_ = 0;
  uint64_t pieces_ = 0;
  uint64_t asked_ = 0;
  uint64_t copied_ = 0;
  uint64_t listed_ = 0;
  uint64_t requests_ = 0;
};

/// Represents counters that grow while a job runs. The difference of two is a stretch of the job.
struct Meter {
  Nanos at = 0;
  uint64_t steps = 0;
  uint64_t delivered = 0;
  uint64_t bytes = 0;
  Nanos decoding = 0;
  std::map<std::string, uint64_t> served;  // by prefix
};

class Job {
 public:
  Job(const Dataset& dataset, const JobModel& model)
      : dataset_(dataset), model_(model), store_(model.store), trainers_(model.ranks) {}
  ~Job() {
    held_.clear();
    streams_.clear();
    for (const std::unique_ptr<SimulatedClient>& client : clients_) client->Stop();
  }

  absl::StatusOr<JobResult> Run() {
    RETURN_IF_ERROR(CheckModel());
    Open();
    while (!done_ && status_.ok() && events_.RunOne()) {
    }
    RETURN_IF_ERROR(status_);
    if (!done_) return absl::InternalError("the simulated job came to a halt: nothing is left to happen");
    Finish();
    return std::move(result_);
  }

 private:
  double HostBandwidth() const { return model_.host_gbit * 1e9 / 8; }  // bytes a second; 0: no limit
  bool service() const { return model_.workers_per_rank > 0; }
  uint64_t streams_per_rank() const { return std::max<uint64_t>(1, model_.workers_per_rank); }

  struct Stream {
    std::unique_ptr<SimulatedRank> rank;
    Position received;     // after its last batch that a step took
    uint64_t samples = 0;  // in these batches
  };

  absl::Status CheckModel() const {
    if (model_.ranks == 0 || model_.ranks_per_host == 0) return absl::InvalidArgumentError("a job has ranks and hosts");
    if (model_.loader.batch % streams_per_rank() != 0) {
      return absl::InvalidArgumentError(fmt::format("a batch of {} cannot be divided equally among {} workers",
                                                    model_.loader.batch, streams_per_rank()));
    }
    if (model_.loss && !service() && !model_.loss->replaced &&
        model_.loss->hosts * model_.ranks_per_host >= trainers_) {
      return absl::InvalidArgumentError("no rank would be left after the loss");
    }
    return absl::OkStatus();
  }

  // ---- The beginning

  SimulatedClient* NewClient(uint64_t host) {
    while (hosts_.size() <= host) hosts_.push_back(std::make_unique<SimulatedNetwork>(HostBandwidth()));
    return clients_
        .emplace_back(std::make_unique<SimulatedClient>(&events_, &store_, hosts_[host].get(), clients_.size()))
        .get();
  }

  void Open() {
    const uint64_t processes = trainers_ * streams_per_rank();
    opening_left_ = processes;
    for (uint64_t process = 0; process < processes; ++process) {
      const bool copies = model_.copies_index && process % model_.ranks_per_host == 0;
      SimulatedClient* const client = NewClient(process / model_.ranks_per_host);
      openings_.push_back(std::make_unique<Opening>(&events_, client, dataset_, copies, [this] {
        if (--opening_left_ == 0) BeginStreams();
      }));
    }
  }

  void BeginStreams() {
    result_.open_seconds = events_.seconds();
    for (const std::unique_ptr<Opening>& opening : openings_) result_.opening_requests += opening->requests();
    began_ = events_.now();
    MakeStreams(std::nullopt);
  }

  // Makes the streams of the whole job, at a position.
  void MakeStreams(std::optional<Position> start) {
    const uint64_t world = trainers_ * streams_per_rank();
    streams_.clear();
    streams_.resize(world);
    for (uint64_t number = 0; number < world && status_.ok(); ++number) {
      status_ = MakeStream(number, start, lost_ ? NewClient(HostOf(number)) : clients_[number].get());
    }
    AskForStep();
  }

  // After a loss the last ones are on hosts that take the place of those that are gone.
  uint64_t HostOf(uint64_t number) const {
    const uint64_t host = number / model_.ranks_per_host;
    return lost_ && number >= first_lost_ ? host + hosts_at_loss_ : host;
  }

  absl::Status MakeStream(uint64_t number, std::optional<Position> start, SimulatedClient* client) {
    LoaderOptions options = model_.loader;
    options.batch /= streams_per_rank();
    options.rank = number;
    options.world = trainers_ * streams_per_rank();
    options.start = start;
    absl::StatusOr<LoaderPlan> plan = Settle(Source(dataset_), options);
    RETURN_IF_ERROR(plan.status());
    result_.policy = plan->policy();
    result_.samples = plan->positions();
    Stream& stream = streams_[number];
    stream.received = start.value_or(Position{0, 0, plan->fingerprint});
    stream.rank = std::make_unique<SimulatedRank>(&events_, client, *std::move(plan), model_.decode,
                                                  [this] { events_.After(Nanos{0}, [this] { AskForStep(); }); });
    stream.rank->Begin();
    if (waits_) stream.rank->Wait();
    return stream.rank->status();
  }

  // ---- Steps

  void AskForStep() {
    if (done_ || in_step_ || !status_.ok()) return;
    bool all = true;
    for (Stream& stream : streams_) {
      if (!stream.rank->status().ok()) {
        status_ = stream.rank->status();
        return;
      }
      all = all && stream.rank->has_batch();
      if (stream.rank->ended() && !stream.rank->has_batch()) return EndJob();
    }
    if (!waits_) {
      waits_ = true;
      for (Stream& stream : streams_) stream.rank->Wait();
    }
    if (!all) return;
    if (model_.loss && !lost_ && steps_ == model_.loss->step) return Lose();
    BeginStep();
  }

  void BeginStep() {
    if (steps_ == 0 && !first_) {
      first_ = events_.now();
      result_.first_batch_seconds = EventQueue::ToSeconds(events_.now() - began_);
    }
    if (lost_at_) result_.recovery_seconds = EventQueue::ToSeconds(events_.now() - *std::exchange(lost_at_, {}));
    if (!steady_ && steps_ >= StepsToDo() / 4) steady_ = Read();
    in_step_ = true;
    waits_ = false;
    Nanos transfer = 0;
    for (Stream& stream : streams_) {
      Batch batch = stream.rank->Take();
      stream.received = batch.position;
      stream.samples += batch.valid;
      delivered_ += batch.valid;
      if (service()) transfer = std::max(transfer, TransferTime(batch));
      last_of_epoch_ = batch.last_of_epoch;
      held_.push_back(std::move(batch));
    }
    events_.After(transfer + EventQueue::OfSeconds(model_.step_ms / 1000), [this] { EndStep(); });
  }

  // Batches of workers come over the trainers' networks, all parts of a batch of a host one after the other.
  Nanos TransferTime(const Batch& batch) const {
    if (model_.host_gbit <= 0) return 0;
    const double bytes = static_cast<double>(batch.slot.size()) * static_cast<double>(streams_per_rank()) *
                         static_cast<double>(std::min(model_.ranks_per_host, trainers_));
    return EventQueue::OfSeconds(bytes / HostBandwidth());
  }

  void EndStep() {
    held_.clear();
    in_step_ = false;
    ++steps_;
    ++result_.steps;
    if (model_.loss && steps_ % model_.loss->checkpoint_every == 0) checkpoint_ = streams_.front().received;
    if (steps_ >= StepsToDo() || (last_of_epoch_ && model_.steps == 0)) return EndJob();
    AskForStep();
  }

  uint64_t StepsToDo() const { return model_.steps > 0 ? model_.steps : streams_.front().rank->plan().steps(); }

  void EndJob() {
    done_ = true;
    end_ = Read();
  }

  // ---- A loss

  void Lose() {
    lost_ = true;
    lost_at_ = events_.now();
    const uint64_t gone = std::min(model_.loss->hosts * model_.ranks_per_host, streams_.size());
    first_lost_ = streams_.size() - gone;
    hosts_at_loss_ = hosts_.size();
    for (uint64_t number = service() ? first_lost_ : 0; number < streams_.size(); ++number) Drop(streams_[number]);
    if (service()) {
      // Trainers hold all positions: each stream continues behind its last received batch.
      for (uint64_t number = first_lost_; number < streams_.size() && status_.ok(); ++number) {
        status_ = MakeStream(number, streams_[number].received, NewClient(HostOf(number)));
      }
      return;
    }
    const uint64_t lost_steps = steps_ - steps_ / model_.loss->checkpoint_every * model_.loss->checkpoint_every;
    steps_ -= lost_steps;
    if (!model_.loss->replaced) trainers_ -= gone;
    waits_ = false;
    MakeStreams(checkpoint_);
  }

  // Others fetch again the samples that it has fetched and not delivered, and those delivered since the checkpoint.
  void Drop(Stream& stream) {
    const SimulatedRank::Counts& counts = stream.rank->counts();
    const double mean =
        counts.samples > 0 ? static_cast<double>(counts.bytes) / static_cast<double>(counts.samples) : 0;
    uint64_t kept = stream.samples;
    if (!service()) kept -= std::min(kept, SamplesSinceCheckpoint());
    result_.refetched_bytes += static_cast<uint64_t>(mean * static_cast<double>(counts.samples - kept));
    result_.fetched += counts;
    AddStalls(stream);
    stream.rank.reset();
    stream.samples = 0;
  }

  uint64_t SamplesSinceCheckpoint() const { return steps_ % model_.loss->checkpoint_every * model_.loader.batch; }

  // ---- The end

  void AddStalls(const Stream& stream) {
    const StallReport report = stream.rank->stalls();
    for (size_t i = 0; i < kStallCauses; ++i) result_.stalls[i] += report.seconds[i];
  }

  Meter Read() const {
    Meter meter{.at = events_.now(), .steps = result_.steps, .delivered = delivered_};
    meter.decoding = result_.fetched.decoding;
    for (const Stream& stream : streams_) meter.decoding += stream.rank ? stream.rank->counts().decoding : 0;
    for (const std::unique_ptr<SimulatedNetwork>& host : hosts_) meter.bytes += host->bytes();
    for (const auto& [prefix, tally] : store_.prefixes()) meter.served[prefix] = tally.requests;
    return meter;
  }

  void Finish() {
    for (const Stream& stream : streams_) {
      result_.fetched += stream.rank->counts();
      AddStalls(stream);
    }
    for (const std::unique_ptr<SimulatedClient>& client : clients_) {
      result_.refused += client->refused();
      result_.most_attempts = std::max(result_.most_attempts, client->most_attempts());
    }
    result_.index_bytes = dataset_.index().file_bytes();
    result_.delivered = delivered_;
    if (first_) result_.seconds = EventQueue::ToSeconds(end_.at - *first_);
    for (const auto& [prefix, tally] : store_.prefixes()) {
      if (tally.reads == 0 || prefix.ends_with(".millrace/")) continue;
      ++result_.prefixes;
      result_.most_in_a_second = std::max(result_.most_in_a_second, tally.most_in_a_second);
    }
    FinishSteady(steady_.value_or(Meter{}));
  }

  void FinishSteady(const Meter& from) {
    JobResult::Steady& steady = result_.steady;
    steady.seconds = EventQueue::ToSeconds(end_.at - from.at);
    steady.steps = end_.steps - from.steps;
    steady.delivered = end_.delivered - from.delivered;
    if (steady.seconds <= 0) return;
    uint64_t requests = 0;
    uint64_t busiest = 0;
    for (const auto& [prefix, count] : end_.served) {
      const auto before = from.served.find(prefix);
      const uint64_t here = count - (before != from.served.end() ? before->second : 0);
      requests += here;
      busiest = std::max(busiest, here);
    }
    const double threads =
        static_cast<double>(model_.decode.threads) * static_cast<double>(trainers_ * streams_per_rank());
    steady.samples_per_second = static_cast<double>(steady.delivered) / steady.seconds;
    steady.requests_per_second = static_cast<double>(requests) / steady.seconds;
    steady.busiest_prefix_per_second = static_cast<double>(busiest) / steady.seconds;
    steady.bytes_per_second = static_cast<double>(end_.bytes - from.bytes) / steady.seconds;
    if (model_.store.rate_per_prefix > 0) {
      steady.prefix = steady.busiest_prefix_per_second / static_cast<double>(model_.store.rate_per_prefix);
    }
    if (model_.host_gbit > 0) {
      const uint64_t hosts = (streams_.size() + model_.ranks_per_host - 1) / model_.ranks_per_host;
      steady.network = steady.bytes_per_second / (static_cast<double>(hosts) * HostBandwidth());
    }
    steady.cpu = EventQueue::ToSeconds(end_.decoding - from.decoding) / steady.seconds / threads;
    steady.model = static_cast<double>(steady.steps) * model_.step_ms / 1000 / steady.seconds;
  }

  const Dataset& dataset_;
  const JobModel& model_;
  EventQueue events_;
  SimulatedStore store_;
  uint64_t trainers_;
  std::vector<std::unique_ptr<SimulatedNetwork>> hosts_;
  std::vector<std::unique_ptr<SimulatedClient>> clients_;
  std::vector<std::unique_ptr<Opening>> openings_;
  uint64_t opening_left_ = 0;
  std::vector<Stream> streams_;  // of all ranks, or workers
  std::vector<Batch> held_;      // by the step in progress

  absl::Status status_;
  bool done_ = false;
  bool in_step_ = false;
  bool waits_ = false;
  bool last_of_epoch_ = false;
  bool lost_ = false;
  uint64_t first_lost_ = 0;  // stream
  uint64_t hosts_at_loss_ = 0;
  std::optional<Position> checkpoint_;
  std::optional<Nanos> lost_at_;
  Nanos began_ = 0;
  std::optional<Nanos> first_;
  uint64_t steps_ = 0;  // of the training: those that were lost do not count
  uint64_t delivered_ = 0;
  std::optional<Meter> steady_;
  Meter end_;
  JobResult result_;
};

}  // namespace

std::string JobResult::limit() const {
  if (steady.model >= 0.98) return "the model";
  const auto cause = static_cast<size_t>(StallCause::kThrottling);
  const auto consumer = static_cast<size_t>(StallCause::kConsumer);
  bool throttled = refused > 0;
  for (size_t i = 0; i < kStallCauses; ++i) throttled = throttled && (i == consumer || stalls[i] <= stalls[cause]);
  if (throttled) return "requests of a prefix";
  const std::pair<double, const char*> shares[] = {
      {steady.prefix, "requests of a prefix"}, {steady.network, "network"}, {steady.cpu, "CPUs"}};
  const auto* const most = std::max_element(std::begin(shares), std::end(shares));
  return most->first >= 0.8 ? most->second : "latency";
}

absl::StatusOr<JobResult> SimulateJob(const Dataset& dataset, const JobModel& model) {
  return Job(dataset, model).Run();
}

}  // namespace millrace
