#include "s3/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "absl/time/clock.h"
#include "aws/request_log.h"
#include "base/life_sign.h"
#include "base/log.h"
#include "base/log_exception.h"
#include "net/sure_answer.h"

namespace millrace {

namespace {

RequestPhase ToRequestPhase(HttpPhase phase) {
  switch (phase) {
    case HttpPhase::kQueued:
      return RequestPhase::kQueued;
    case HttpPhase::kConnect:
      return RequestPhase::kConnect;
    case HttpPhase::kFirstByte:
      return RequestPhase::kFirstByte;
    case HttpPhase::kBody:
      return RequestPhase::kBody;
  }
  return RequestPhase::kQueued;
}

// While it is not known what a late first byte is, or no second request is allowed: among the first requests of all
// there may be one that stalls.
constexpr absl::Duration kAskAgain = absl::Milliseconds(50);
// A body's rate is looked at this often, over as long; a trickle is cut after two looks at most.
constexpr absl::Duration kLook = absl::Milliseconds(900);
// If the remaining bytes would come in this time at the rate so far, another request is not worth it.
constexpr double kWorthCuttingSeconds = 1;
constexpr absl::Duration kMostWithoutSign = absl::Seconds(1);

}  // namespace

// This is one request of the exchange. It lives until its OnDone, and keeps the operation alive that long.
struct S3Operation::Attempt final : HttpResponseHandler {
  explicit Attempt(std::shared_ptr<S3Operation> owner) : operation(std::move(owner)) {}

  void OnPhase(HttpPhase phase) override { operation->OnPhase(*this, phase); }
  HttpBodySink OnHead(HttpResponseHead head) override { return operation->OnHead(*this, std::move(head)); }
  void OnDone(HttpResult result) override { operation->OnDone(*this, std::move(result)); }

  const std::shared_ptr<S3Operation> operation;
  std::shared_ptr<HttpCall> call;
  std::optional<RequestLog> log;   // if it is to be logged
  std::optional<absl::Time> sent;  // the whole request
  std::optional<absl::Time> answered;
  uint64_t seen = 0;      // bytes of the body at the last look
  uint64_t expected = 0;  // of the body
  bool too_slow = false;
  bool lost = false;
};

bool S3Gate::Take(std::shared_ptr<S3Operation> operation) {
  if (free_ == 0) {
    waiting_.push_back(std::move(operation));
    return false;
  }
  --free_;
  return true;
}

void S3Gate::Return() {
  while (!waiting_.empty()) {
    const std::shared_ptr<S3Operation> next = std::move(waiting_.front());
    waiting_.pop_front();
    if (next->OnPermit()) return;
  }
  ++free_;
}

S3Operation::S3Operation(const Environment& environment, S3Loop& home, std::unique_ptr<S3Exchange> exchange,
                         RequestProgress* progress)
    : environment_(environment), home_(home), exchange_(std::move(exchange)), progress_(progress) {}
S3Operation::~S3Operation() = default;

void S3Operation::OnStop::operator()() const {
  try {
    loop->Post([operation = operation] {
      if (const std::shared_ptr<S3Operation> self = operation.lock()) self->Cancel();
    });
  } catch (const std::exception& error) {  // then the request ends by itself
    LogException("s3", error);
  }
}

template <typename Step>
void S3Operation::Guard(Step step) noexcept {
  const std::shared_ptr<S3Operation> self = shared_from_this();
  try {
    step();
  } catch (const std::exception& error) {
    LogException("s3", error);
    GiveUp();
  }
}

// Needs no allocation to succeed.
void S3Operation::GiveUp() noexcept {
  if (ended_) return;
  cancelled_ = exhausted_ = true;
  if (!CancelAttempts()) EndCancelled();
}

// Returns false if none is in flight. Otherwise the last OnDone ends the operation.
bool S3Operation::CancelAttempts() {
  if (attempts_.empty()) return false;
  StopWatching();
  std::array<std::shared_ptr<HttpCall>, 2> calls;
  for (size_t i = 0; i < attempts_.size(); ++i) calls[i] = attempts_[i]->call;
  for (const std::shared_ptr<HttpCall>& call : calls) {
    if (call != nullptr) call->Cancel();
  }
  return true;
}

void S3Operation::Begin(std::stop_token stop, bool closing) {
  cancelled_ = closing;
  Guard([&] {
    home_.live.push_back(shared_from_this());
    place_ = home_.live.size();
    if (cancelled_) return EndCancelled();
    if (stop.stop_possible()) stop_.emplace(std::move(stop), OnStop{weak_from_this(), &home_.loop});
    Do(exchange_->Begin());
  });
}

void S3Operation::Cancel() {
  if (cancelled_ || ended_) return;
  cancelled_ = true;
  if (CancelAttempts()) return;
  // Otherwise Send ends it, since its permit has just come.
  if (timer_ || waits_for_permit_ || waits_for_credentials_) Guard([this] { EndCancelled(); });
}

void S3Operation::Do(const S3Step& step) {
  switch (step.kind) {
    case S3Step::Kind::kSend:
      return Send();
    case S3Step::Kind::kWait:
      ReturnPermit();
      return WaitThenSend(step.wait, step.away ? RequestPhase::kOutage : RequestPhase::kThrottled);
    case S3Step::Kind::kDone:
      return End();
  }
}

bool S3Operation::OnPermit() noexcept {
  waits_for_permit_ = false;
  if (ended_) return false;
  // The request is not sent from here: the caller that returns a permit is in the middle of something.
  try {
    home_.loop.Post([self = shared_from_this()] {
      self->Guard([&] {
        if (!self->ended_) self->Send();
      });
    });
  } catch (const std::exception& error) {
    LogException("s3", error);
    GiveUp();
    return false;
  }
  has_permit_ = true;
  return true;
}

void S3Operation::ReturnPermit() {
  if (std::exchange(has_permit_, false)) home_.gate.Return();
}

void S3Operation::Send() {
  if (cancelled_) return EndCancelled();
  if (const absl::Time now = absl::Now(); !exchange_->TakeCredentials(now)) return WaitForCredentials(now);
  if (!has_permit_) {
    Report(RequestPhase::kQueued);
    has_permit_ = home_.gate.Take(shared_from_this());
    waits_for_permit_ = !has_permit_;
    if (waits_for_permit_) return;
  }
  const Pacer::Turn turn = exchange_->TakeTurn(absl::Now());
  if (turn.wait > absl::ZeroDuration()) {
    if (turn.away) return WaitThenSend(turn.wait, RequestPhase::kOutage);
    return WaitThenSend(turn.wait, turn.throttled ? RequestPhase::kThrottled : RequestPhase::kQueued);
  }
  StartAttempt(/*hedge=*/false);
}

void S3Operation::WaitForCredentials(absl::Time now) {
  ReturnPermit();
  Report(RequestPhase::kCredentials);
  waits_for_credentials_ = true;
  SureAnswer<absl::Status> go_on(home_.loop, [weak = weak_from_this()](const absl::Status& status) {
    if (const std::shared_ptr<S3Operation> self = weak.lock()) self->OnCredentials(status);
  });
  exchange_->credentials_provider().Wait(
      now, [go_on = std::move(go_on), &loop = home_.loop](absl::Status status) mutable {
        loop.Post([go_on = std::move(go_on), status = std::move(status)]() mutable { go_on(std::move(status)); });
      });
}

void S3Operation::OnCredentials(const absl::Status& status) {
  if (ended_) return;
  waits_for_credentials_ = false;
  Guard([&] {
    if (status.ok()) return Send();
    exchange_->Abandon(status);
    End();
  });
}

void S3Operation::WaitThenSend(absl::Duration wait, RequestPhase phase) {
  Report(phase);
  if (phase != RequestPhase::kQueued) ShowLife();  // it waits for a store that has failed
  // A long wait is made in pieces, each with a sign of life.
  const absl::Duration piece = phase == RequestPhase::kQueued ? wait : std::min(wait, kMostWithoutSign);
  timer_.emplace(home_.loop);
  timer_->Start(absl::ToChronoNanoseconds(piece), [this, left = wait - piece, phase] {
    Guard([this, left, phase] {
      timer_.reset();
      if (left > absl::ZeroDuration()) return WaitThenSend(left, phase);
      Send();
    });
  });
}

void S3Operation::StartAttempt(bool hedge) {
  attempts_.push_back(std::make_unique<Attempt>(shared_from_this()));
  Attempt& attempt = *attempts_.back();
  const absl::Time now = absl::Now();
  try {
    if (hedge) losers_.reserve(losers_.size() + 2);  // so that Lose needs no memory
    HttpRequest request = exchange_->Request(now, hedge);
    if (!hedge) ++requests_;
    if (LogEnabled(LogLevel::kDebug)) attempt.log.emplace(request, RequestLog::Shows::kTarget, requests_, hedge, now);
    attempt.call = environment_.http.Start(home_.loop, std::move(request), attempt);
  } catch (const std::exception&) {
    attempts_.pop_back();
    throw;
  }
}

// ---- While a request is in flight

void S3Operation::OnPhase(Attempt& attempt, HttpPhase phase) {
  if (attempt.lost) return;  // the other one may have ended it all
  if (&attempt == attempts_.front().get()) Report(ToRequestPhase(phase));
  if (phase != HttpPhase::kFirstByte || attempt.sent) return;
  attempt.sent = absl::Now();
  if (exchange_->hedged() && attempts_.size() == 1) HedgeLater(attempt);
}

void S3Operation::HedgeLater(Attempt& first, absl::Duration at_least) {
  const absl::Duration delay = environment_.context.hedging.Delay();
  const bool known = delay != absl::InfiniteDuration();
  const absl::Duration wait = std::max(at_least, known ? *first.sent + delay - absl::Now() : kAskAgain);
  home_.timers.Cancel(hedge_);
  // Two tasks that own two pointers each need no memory.
  const auto in_time = absl::ToChronoNanoseconds(wait);
  if (known) {
    hedge_ = home_.timers.Start(in_time, [this, &first] { Hedge(first); });
  } else {
    hedge_ = home_.timers.Start(in_time, [this, &first] {
      if (!first.answered && attempts_.size() == 1 && !cancelled_) HedgeLater(first);
    });
  }
}

void S3Operation::Hedge(Attempt& first) {
  if (first.answered || attempts_.size() != 1 || cancelled_) return;
  const bool may = exchange_->MayHedge(absl::Now()) && environment_.context.hedging.Take();
  // If it throws, there is no second request, and the first one is as good as before.
  may ? StartAttempt(/*hedge=*/true) : HedgeLater(first, kAskAgain);
}

HttpBodySink S3Operation::OnHead(Attempt& attempt, HttpResponseHead&& head) {
  if (attempt.log) attempt.log->OnHead(head, absl::Now());
  if (attempt.lost) return HttpBodySink::Refuse();
  // An error counts when nothing better can come any more.
  if (head.status >= 300 && attempts_.size() > 1) {
    Lose(attempt);
    return HttpBodySink::Refuse();
  }
  const absl::Time now = absl::Now();
  attempt.answered = now;
  Hedging& hedging = environment_.context.hedging;
  if (attempts_.size() > 1) {
    Attempt& other = attempts_.front().get() == &attempt ? *attempts_.back() : *attempts_.front();
    if (&other == attempts_.front().get()) hedging.OnLost();
    home_.loop.Post([call = other.call] { call->Cancel(); });  // not from within another call
    Lose(other);
  }
  if (exchange_->hedged()) {
    hedging.OnFirstByte(now - attempt.sent.value_or(now));
    attempt.expected = head.content_length.value_or(0);
    home_.timers.Cancel(hedge_);
    if (head.status < 300 && attempt.expected > 0) Watch(attempt);
  }
  return exchange_->OnHead(std::move(head));
}

void S3Operation::Lose(Attempt& attempt) {
  attempt.lost = true;
  const auto at = std::find_if(attempts_.begin(), attempts_.end(), [&](const auto& a) { return a.get() == &attempt; });
  losers_.push_back(std::move(*at));
  attempts_.erase(at);
}

void S3Operation::Watch(Attempt& attempt) {
  home_.timers.Cancel(look_);
  look_ = home_.timers.Start(absl::ToChronoNanoseconds(kLook), [this, &attempt] {
    const std::shared_ptr<S3Operation> self = shared_from_this();
    const uint64_t received = attempt.call->body_bytes();
    const auto rate = static_cast<double>(received - attempt.seen) / absl::ToDoubleSeconds(kLook);
    attempt.seen = received;
    const auto left = static_cast<double>(attempt.expected - std::min(received, attempt.expected));
    if (left <= kWorthCuttingSeconds * rate || !environment_.context.hedging.GiveUp(rate)) return Watch(attempt);
    attempt.too_slow = true;
    attempt.call->Cancel();
  });
}

void S3Operation::StopWatching() {
  home_.timers.Cancel(hedge_);
  home_.timers.Cancel(look_);
}

void S3Operation::OnDone(Attempt& done, HttpResult&& result) {
  const auto is_it = [&](const std::unique_ptr<Attempt>& a) { return a.get() == &done; };
  Attempts& list = done.lost ? losers_ : attempts_;
  const auto at = std::find_if(list.begin(), list.end(), is_it);
  const std::unique_ptr<Attempt> attempt = std::move(*at);  // and with it the operation, until the end of this call
  list.erase(at);
  const bool was_last = !attempt->lost && attempts_.empty();
  const std::shared_ptr<S3Operation> self = shared_from_this();
  try {
    Conclude(*attempt, std::move(result));
  } catch (const std::exception& error) {
    LogException("s3", error);
    if (was_last) GiveUp();
  }
}

void S3Operation::Conclude(Attempt& done, HttpResult&& result) {
  Attempt* const attempt = &done;
  if (attempt->log) Log(LogLevel::kDebug, "s3", attempt->log->Line(result, absl::Now()));
  Hedging& hedging = environment_.context.hedging;
  // The attempt has lost, or has failed before the other one answered, which then continues alone.
  if (attempt->lost || !attempts_.empty()) {
    environment_.context.counters.bytes_read.fetch_add(result.wire_bytes, std::memory_order_relaxed);
    return hedging.OnWasted(result.wire_bytes);
  }
  StopWatching();
  if (exhausted_) return EndCancelled();
  if (exchange_->hedged() && attempt->answered) hedging.OnBody(result.wire_bytes, absl::Now() - *attempt->answered);
  if (attempt->too_slow && result.error == HttpErrorKind::kCancelled && !cancelled_) {
    result.error = HttpErrorKind::kTimeout;
    result.detail = "the body came far more slowly than others";
  }
  const S3Step step = exchange_->OnResult(std::move(result), absl::Now());
  if (cancelled_ && step.kind != S3Step::Kind::kDone) return EndCancelled();
  Do(step);
}

void S3Operation::EndCancelled() {
  exchange_->Abandon(exhausted_ ? OutOfMemory() : absl::CancelledError("the request was cancelled"));
  End();
}

void S3Operation::End() {
  const std::shared_ptr<S3Operation> self = shared_from_this();
  ended_ = true;
  ReturnPermit();
  timer_.reset();
  StopWatching();
  stop_.reset();
  Report(RequestPhase::kDone);
  home_.operations.fetch_sub(1, std::memory_order_relaxed);  // first: the caller's next one may take its place
  try {
    exchange_->Finish();
  } catch (const std::exception& error) {  // of the caller, or before its callback was called, which then answers
    LogException("s3", error);
  }
  if (place_ > 0) {  // else there was no memory to begin
    std::shared_ptr<S3Operation>& place = home_.live[place_ - 1];
    if (place_ < home_.live.size()) {
      place = std::move(home_.live.back());
      place->place_ = place_;
    }
    home_.live.pop_back();
  }
  environment_.operations.End();
}

}  // namespace millrace
