#include "simulated_store.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/backoff.h"
#include "base/rng.h"

namespace millrace {

namespace {

using Nanos = EventQueue::Nanos;

constexpr uint64_t kJitterDomain = 0x7363616c652d6a69;  // "scale-ji"

std::string PrefixOf(const std::string& subject) {
  return subject.substr(0, subject.rfind('/') + 1);
}

Nanos TimeFor(uint64_t bytes, double bytes_per_second) {
  return bytes_per_second > 0 ? EventQueue::OfSeconds(static_cast<double>(bytes) / bytes_per_second) : 0;
}

}  // namespace

SimulatedStore::Tally& SimulatedStore::Count(const std::string& subject, int64_t second) {
  const std::string prefix = PrefixOf(subject);
  Tally& tally = prefixes_[prefix];
  Second& current = seconds_[prefix];
  if (current.number != second) current = {second, 0};
  tally.most_in_a_second = std::max(tally.most_in_a_second, ++current.requests);
  return tally;
}

SimulatedStore::Answer SimulatedStore::Ask(const char* method, const std::string& subject, const std::string& part,
                                           uint64_t body_bytes, const EventQueue& events) {
  Tally& tally = Count(subject, events.now() / 1'000'000'000);
  if (!rates_.Take(subject, events.steady_now())) {
    ++tally.refused;
    return {.refused = true, .head = events.now() + EventQueue::OfSeconds(model_.refusal_ms / 1000)};
  }
  RequestIdentity identity{.method = method, .key = subject, .range = part};
  identity.attempt = attempts_.Next(identity);
  std::chrono::nanoseconds delay{0};
  if (model_.latency.enabled()) delay = FirstByteDelay(model_.latency, model_.seed, identity);
  ++tally.requests;
  tally.reads += identity.method == "GET" ? 1 : 0;
  tally.bytes += body_bytes;
  return {.head = LeavesAt(events.steady_now(), delay).time_since_epoch().count(),
          .body_for = TimeFor(body_bytes, static_cast<double>(model_.connection_bandwidth))};
}

Nanos SimulatedNetwork::Receive(uint64_t bytes, Nanos now, Nanos least) {
  free_ = std::max(free_, now) + TimeFor(bytes, bytes_per_second_);
  return std::max(free_, now + least);
}

void SimulatedClient::Later(Nanos when, void (SimulatedClient::*next)(const SharedFlight&), SharedFlight flight) {
  events_->At(when, [this, alive = alive_, next, flight = std::move(flight)] {
    if (*alive) (this->*next)(flight);
  });
}

void SimulatedClient::Enter(const SharedFlight& flight, RequestPhase phase) {
  const Request& request = flight->request;
  if (request.before) request.before();
  if (request.progress != nullptr) request.progress->store(phase, std::memory_order_relaxed);
}

void SimulatedClient::Send(Request request) {
  auto flight = std::make_shared<Flight>();
  flight->request = std::move(request);
  flight->number = numbered_++;
  TakeTurn(flight);
}

void SimulatedClient::TakeTurn(const SharedFlight& flight) {
  const Request& request = flight->request;
  const Pacer::Turn turn = pacer_.TakeTurn(Pacer::Kind::kRead, request.bucket, request.key, events_->absl_now());
  if (turn.wait > absl::ZeroDuration()) {
    Enter(flight, turn.throttled ? RequestPhase::kThrottled : RequestPhase::kQueued);
    Later(events_->now() + absl::ToInt64Nanoseconds(turn.wait), &SimulatedClient::TakeTurn, flight);
    return;
  }
  ++sent_;
  flight->sent = events_->absl_now();
  most_attempts_ = std::max(most_attempts_, static_cast<int>(++flight->attempts));
  Enter(flight, RequestPhase::kFirstByte);
  const std::string subject = request.bucket + "/" + request.key;
  const SimulatedStore::Answer answer = store_->Ask(request.method, subject, request.part, request.bytes, *events_);
  if (answer.refused) {
    Later(answer.head, &SimulatedClient::OnRefused, flight);
    return;
  }
  // The rest after the first byte takes as long as the connection and the host's network allow.
  events_->At(answer.head, [this, alive = alive_, flight, least = answer.body_for] {
    if (!*alive) return;
    Enter(flight, RequestPhase::kBody);
    Later(network_->Receive(flight->request.bytes, events_->now(), least), &SimulatedClient::OnBody, flight);
  });
}

void SimulatedClient::OnRefused(const SharedFlight& flight) {
  ++refused_;
  const Request& request = flight->request;
  const absl::Time now = events_->absl_now();
  pacer_.OnAnswer(Pacer::Kind::kRead, request.bucket, request.key, /*throttled=*/true, flight->sent, now);
  const uint64_t key = HashKey(kJitterDomain, {id_, flight->number, flight->attempts});
  const absl::Duration wait = Backoff(++flight->failures, key) + budget_.Spend(now);
  Enter(flight, RequestPhase::kThrottled);
  Later(events_->now() + absl::ToInt64Nanoseconds(wait), &SimulatedClient::TakeTurn, flight);
}

void SimulatedClient::OnBody(const SharedFlight& flight) {
  const Request& request = flight->request;
  pacer_.OnAnswer(Pacer::Kind::kRead, request.bucket, request.key, /*throttled=*/false, flight->sent,
                  events_->absl_now());
  budget_.OnSuccess();
  network_->OnReceived(request.bytes);
  if (request.before) request.before();
  request.done();
}

}  // namespace millrace
