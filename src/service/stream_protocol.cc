#include "service/stream_protocol.h"

#include <algorithm>
#include <utility>

namespace millrace {

uint64_t StreamProtocol::missing() const {
  uint64_t step = next_;
  while (come_.contains(step)) ++step;
  return step;
}

void StreamProtocol::Assign(std::optional<size_t> worker) {
  first_ = missing();
  attempt_ = ++last_attempt_;
  if (!worker) {
    state_ = State::kLocal;
    return;
  }
  state_ = State::kOpening;
  worker_ = *worker;
  // Perhaps everything has arrived already.
  if (first_ == end_) return;
  requests_.push_back({.kind = ServiceRequest::Kind::kOpen, .worker = worker_, .attempt = attempt_, .step = first_});
}

void StreamProtocol::PushClose(size_t worker, uint64_t attempt, const std::string& session) {
  requests_.push_back({.kind = ServiceRequest::Kind::kClose, .worker = worker, .attempt = attempt, .session = session});
}

// Keeps requests that close sessions, and those of attempt `but`.
void StreamProtocol::DropRequests(uint64_t but) {
  std::erase_if(requests_, [but](const ServiceRequest& request) {
    return request.kind != ServiceRequest::Kind::kClose && (but == 0 || request.attempt != but);
  });
}

// The session that is the stream's is over.
void StreamProtocol::GoOnWithHedge() {
  const Second second = *std::exchange(hedge_, std::nullopt);
  Close();
  // The session begins with this step; what came after it of the other one is asked for again.
  state_ = second.session.empty() ? State::kOpening : State::kStreaming;
  attempt_ = second.attempt;
  worker_ = second.worker;
  session_ = second.session;
  first_ = second.step;
  if (second.asked) asked_.insert(second.step);
}

void StreamProtocol::DropHedge() {
  if (!hedge_) return;
  if (!hedge_->session.empty()) PushClose(hedge_->worker, hedge_->attempt, hedge_->session);
  hedge_.reset();
}

void StreamProtocol::Hedge(size_t worker) {
  hedge_ = Second{.attempt = ++last_attempt_, .worker = worker, .step = missing()};
  requests_.push_back(
      {.kind = ServiceRequest::Kind::kOpen, .worker = worker, .attempt = hedge_->attempt, .step = hedge_->step});
}

bool StreamProtocol::EndHedge(uint64_t attempt) {
  if (!IsHedge(attempt)) return false;
  DropHedge();
  return true;
}

void StreamProtocol::Close() {
  come_.erase(come_.lower_bound(missing()), come_.end());
  asked_.clear();
  session_.clear();
  state_ = State::kUnplaced;
}

void StreamProtocol::Release() {
  DropRequests();
  if (state_ == State::kStreaming) PushClose(worker_, attempt_, session_);
  DropHedge();
  Close();
}

std::vector<ServiceRequest> StreamProtocol::TakeRequests(uint64_t before) {
  std::vector<ServiceRequest> requests = std::exchange(requests_, {});
  if (hedge_ && !hedge_->session.empty() && !std::exchange(hedge_->asked, true)) {
    requests.push_back({.kind = ServiceRequest::Kind::kNext,
                        .worker = hedge_->worker,
                        .attempt = hedge_->attempt,
                        .session = hedge_->session,
                        .step = hedge_->step,
                        .sequence = 0});
  }
  if (state_ != State::kStreaming) return requests;
  for (uint64_t step = missing(); step < std::min(end_, before) && step - next_ < window_; ++step) {
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
  if (IsHedge(attempt) && hedge_->session.empty()) {
    hedge_->session = std::move(session);
    return true;
  }
  if (!IsCurrent(attempt) || state_ != State::kOpening) return false;
  session_ = std::move(session);
  state_ = State::kStreaming;
  return true;
}

bool StreamProtocol::OnBatch(uint64_t attempt, uint64_t step, ReceivedBatch batch) {
  if (IsHedge(attempt)) {
    if (!session_.empty()) PushClose(worker_, attempt_, session_);
    GoOnWithHedge();
    asked_.erase(step);
    come_.insert_or_assign(step, std::move(batch));
    return true;
  }
  if (!IsCurrent(attempt) || asked_.erase(step) == 0) return false;
  come_.insert_or_assign(step, std::move(batch));
  if (hedge_ && missing() > hedge_->step) DropHedge();
  return true;
}

bool StreamProtocol::OnNotYet(uint64_t attempt, uint64_t step) {
  if (IsHedge(attempt)) {
    hedge_->asked = false;
    return true;
  }
  return IsCurrent(attempt) && asked_.erase(step) > 0;
}

bool StreamProtocol::OnFailure(uint64_t attempt) {
  if (!IsCurrent(attempt)) return false;
  DropRequests(hedge_ ? hedge_->attempt : 0);
  // The worker may be well, and would keep the session, and its memory, for another while.
  if (state_ == State::kStreaming) PushClose(worker_, attempt_, session_);
  if (hedge_) {
    GoOnWithHedge();
  } else {
    Close();
  }
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
