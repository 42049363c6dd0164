#include "service/stream_protocol.h"

#include <utility>

namespace millrace {

uint64_t StreamProtocol::missing() const {
  uint64_t step = next_;
  while (come_.contains(step)) ++step;
  return step;
}

void StreamProtocol::Assign(std::optional<size_t> worker) {
  first_ = missing();
  ++attempt_;
  if (!worker) {
    state_ = State::kLocal;
    return;
  }
  state_ = State::kOpening;
  worker_ = *worker;
  // What has come is all there is to take, perhaps.
  if (first_ == end_) return;
  requests_.push_back({.kind = ServiceRequest::Kind::kOpen, .worker = worker_, .attempt = attempt_, .step = first_});
}

void StreamProtocol::Close() {
  come_.erase(come_.lower_bound(missing()), come_.end());
  asked_.clear();
  session_.clear();
  state_ = State::kUnplaced;
}

void StreamProtocol::Release() {
  requests_.clear();
  if (state_ == State::kStreaming) {
    requests_.push_back(
        {.kind = ServiceRequest::Kind::kClose, .worker = worker_, .attempt = attempt_, .session = session_});
  }
  Close();
}

std::vector<ServiceRequest> StreamProtocol::TakeRequests() {
  std::vector<ServiceRequest> requests = std::exchange(requests_, {});
  if (state_ != State::kStreaming) return requests;
  for (uint64_t step = missing(); step < end_ && step - next_ < window_; ++step) {
    if (come_.contains(step) || !asked_.insert(step).second) continue;
    requests.push_back({.kind = ServiceRequest::Kind::kNext,
                        .worker = worker_,
                        .attempt = attempt_,
                        .session = session_,
                        .step = step,
                        .sequence = step - first_});
  }
  return requests;
}

bool StreamProtocol::OnOpened(uint64_t attempt, std::string session) {
  if (!IsCurrent(attempt) || state_ != State::kOpening) return false;
  session_ = std::move(session);
  state_ = State::kStreaming;
  return true;
}

bool StreamProtocol::OnBatch(uint64_t attempt, uint64_t step, ReceivedBatch batch) {
  if (!IsCurrent(attempt) || asked_.erase(step) == 0) return false;
  come_.insert_or_assign(step, std::move(batch));
  return true;
}

bool StreamProtocol::OnNotYet(uint64_t attempt, uint64_t step) {
  return IsCurrent(attempt) && asked_.erase(step) > 0;
}

bool StreamProtocol::OnFailure(uint64_t attempt) {
  if (!IsCurrent(attempt)) return false;
  requests_.clear();
  Close();
  return true;
}

std::optional<ReceivedBatch> StreamProtocol::TakeNext() {
  const auto next = come_.find(next_);
  if (next == come_.end()) return std::nullopt;
  std::optional<ReceivedBatch> batch = std::move(next->second);
  come_.erase(next);
  ++next_;
  return batch;
}

}  // namespace millrace
