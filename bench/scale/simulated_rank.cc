#include "simulated_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace millrace {

namespace {

const std::atomic<bool> kNotInterrupted{false};

bool Later(const std::unique_ptr<Walker::Task>& a, const std::unique_ptr<Walker::Task>& b) {
  return a->priority() > b->priority();
}

void SkipDecoding(Walker::Task& task, const absl::StatusOr<DecodedRow>& each) {
  task.rows.assign(task.units.size(), each);
  task.CompletesStep();
}

}  // namespace

SimulatedRank::Counts& SimulatedRank::Counts::operator+=(const Counts& other) {
  requests += other.requests;
  bytes += other.bytes;
  wanted += other.wanted;
  samples += other.samples;
  decoding += other.decoding;
  return *this;
}

SimulatedRank::SimulatedRank(EventQueue* events, SimulatedClient* client, LoaderPlan plan, const DecodeModel& decode,
                             std::function<void()> on_batch)
    : events_(events),
      client_(client),
      plan_(std::move(plan)),
      decode_(decode),
      on_batch_(std::move(on_batch)),
      ring_(plan_.slot_bytes, plan_.slots, Reservation(), [this] { Schedule(); }),
      walker_(
          plan_, decode.threads, &ring_, [this](auto request) { Send(std::move(request)); }, stop_.get_token()) {}

SimulatedRank::~SimulatedRank() {
  *alive_ = false;
  stop_.request_stop();
  // The fetcher gets back what it has sent, and the walker what it has handed out.
  for (auto& [number, request] : requests_) walker_.OnFetched(std::move(request), absl::CancelledError());
  for (auto& [number, task] : running_) tasks_.push_back(std::move(task));
  for (std::unique_ptr<Walker::Task>& task : tasks_) {
    SkipDecoding(*task, absl::CancelledError());
    walker_.OnDecoded(std::move(task));
  }
  batches_.clear();
}

// Handles all events of one moment together.
void SimulatedRank::Schedule() {
  if (scheduled_ || !*alive_) return;
  scheduled_ = true;
  events_->After(EventQueue::Nanos{0}, [this, alive = alive_] {
    if (*alive) Walk();
  });
}

void SimulatedRank::Walk() {
  Charge();
  scheduled_ = false;
  const bool had_none = batches_.empty();
  for (bool more = true; more;) {
    more = walker_.Advance(batches_.size(), kNotInterrupted);
    Walker::Output output = walker_.Take();
    for (std::unique_ptr<Walker::Task>& task : output.tasks) {
      tasks_.push_back(std::move(task));
      std::push_heap(tasks_.begin(), tasks_.end(), Later);
    }
    for (Batch& batch : output.batches) batches_.push_back(std::move(batch));
    wait_ = std::move(output.wait);
    if (output.end) {
      ended_ = true;
      status_ = *std::move(output.end);
    }
    StartTasks();
  }
  if (ended_ || (had_none && !batches_.empty())) on_batch_();
}

void SimulatedRank::Send(std::unique_ptr<Request> request) {
  const Request& sent = *request;
  ++counts_.requests;
  counts_.bytes += sent.run.range().length;
  for (const FetchRun::Part& part : sent.run.parts) counts_.wanted += part.span.length;
  counts_.samples += sent.items.size();
  const uint64_t number = numbered_++;
  const std::string& bucket = sent.store->traits().bucket;
  const ByteRange range = sent.run.range();
  SimulatedClient::Request get{.bucket = bucket.empty() ? "scale" : bucket,
                               .key = sent.key,
                               .part = fmt::format("bytes={}-{}", range.offset, range.end() - 1),
                               .bytes = range.length,
                               .progress = sent.progress.get(),
                               .before =
                                   [this, alive = alive_] {
                                     if (*alive) Charge();
                                   },
                               .done =
                                   [this, alive = alive_, number, progress = sent.progress] {
                                     if (*alive) OnFetched(number);
                                   }};
  requests_.emplace(number, std::move(request));
  // Not from within the walk: the answer may come at once.
  events_->After(EventQueue::Nanos{0}, [this, alive = alive_, get = std::move(get)]() mutable {
    if (*alive) client_->Send(std::move(get));
  });
}

void SimulatedRank::OnFetched(uint64_t number) {
  auto request = requests_.extract(number);
  walker_.OnFetched(std::move(request.mapped()), absl::OkStatus());
  Schedule();
}

void SimulatedRank::StartTasks() {
  while (!tasks_.empty() && running_.size() < static_cast<size_t>(decode_.threads)) {
    std::pop_heap(tasks_.begin(), tasks_.end(), Later);
    std::unique_ptr<Walker::Task> task = std::move(tasks_.back());
    tasks_.pop_back();
    const EventQueue::Nanos time =
        EventQueue::OfSeconds(decode_.sample_ms / 1000 * static_cast<double>(task->units.size()));
    counts_.decoding += time;
    const uint64_t number = numbered_++;
    running_.emplace(number, std::move(task));
    events_->After(time, [this, alive = alive_, number] {
      if (*alive) OnDecoded(number);
    });
  }
}

void SimulatedRank::OnDecoded(uint64_t number) {
  Charge();
  auto task = running_.extract(number);
  SkipDecoding(*task.mapped(), DecodedRow{});
  walker_.OnDecoded(std::move(task.mapped()));
  StartTasks();
  Schedule();
}

void SimulatedRank::Wait() {
  if (waiting_) return;
  waiting_ = true;
  ledger_.Begin(events_->steady_now());
}

Batch SimulatedRank::Take() {
  Charge();
  ledger_.End(events_->steady_now());
  waiting_ = false;
  Batch batch = std::move(batches_.front());
  batches_.pop_front();
  walker_.OnTaken(batch.value_bytes);
  Schedule();
  return batch;
}

// The time since the last event was spent on what was waited for then. A rank that has its batch waits for the others.
void SimulatedRank::Charge() {
  if (!waiting_) return;
  ledger_.Charge(batches_.empty() ? wait_.Now() : StallCause::kConsumer, events_->steady_now());
}

}  // namespace millrace
