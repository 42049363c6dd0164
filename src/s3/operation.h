#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/in_flight.h"
#include "net/http_client.h"
#include "net/timer_queue.h"
#include "s3/exchange.h"
#include "s3/object.h"

namespace millrace {

class S3Operation;

/// Bounds how many operations of one loop may have a request in flight; the others wait in order. A request that takes
/// its turn therefore goes out at once, and the pace of requests is what the store sees. On the loop's thread only.
class S3Gate {
 public:
  explicit S3Gate(int permits) : free_(permits) {}

  /// Returns false if `operation` gets its permit later, by OnPermit.
  bool Take(std::shared_ptr<S3Operation> operation);
  void Return();

 private:
  int free_;
  std::deque<std::shared_ptr<S3Operation>> waiting_;
};

/// Holds what the operations of one loop share. On the loop's thread only, except the constructor and `operations`.
struct S3Loop {
  S3Loop(EventLoop& event_loop, int permits) : loop(event_loop), gate(permits), timers(event_loop) {}

  EventLoop& loop;
  S3Gate gate;
  TimerQueue timers;
  std::vector<std::shared_ptr<S3Operation>> live;  // have begun and not ended
  std::atomic<size_t> operations{0};               // that were given to it and have not ended
};

/// Drives one exchange on one event loop: waits for credentials, takes turns at the pace of the store, sends and waits.
/// For reads, it sends a second request if the first byte is late, and gives up bodies that trickle. An exception of a
/// step (too little memory) ends it with ResourceExhausted. All of it is on the loop's thread, except the constructor.
class S3Operation final : public std::enable_shared_from_this<S3Operation> {
 public:
  /// Holds what it works with; all outlive it.
  struct Environment {
    HttpClient& http;
    S3Context& context;
    InFlight& operations;
  };

  S3Operation(const Environment& environment, S3Loop& home, std::unique_ptr<S3Exchange> exchange,
              RequestProgress* progress);
  ~S3Operation();

  /// Begins; if `closing`, it is cancelled at once.
  void Begin(std::stop_token stop, bool closing);
  void Cancel();
  /// Returns false if it does not need one any more.
  bool OnPermit() noexcept;

 private:
  struct Attempt;
  using Attempts = absl::InlinedVector<std::unique_ptr<Attempt>, 2>;
  struct OnStop {
    std::weak_ptr<S3Operation> operation;
    EventLoop* loop;
    void operator()() const;
  };

  // Runs a step.
  template <typename Step>
  void Guard(Step step) noexcept;
  void GiveUp() noexcept;
  bool CancelAttempts();
  void Do(const S3Step& step);
  void Send();
  void ReturnPermit();
  void WaitForCredentials(absl::Time now);
  void OnCredentials(const absl::Status& status);
  void WaitThenSend(absl::Duration wait, RequestPhase phase);
  void StartAttempt(bool hedge);
  void Hedge(Attempt& first);
  void HedgeLater(Attempt& first, absl::Duration at_least = absl::ZeroDuration());
  void Watch(Attempt& attempt);
  void StopWatching();

  void OnPhase(Attempt& attempt, HttpPhase phase);
  HttpBodySink OnHead(Attempt& attempt, HttpResponseHead&& head);
  void OnDone(Attempt& attempt, HttpResult&& result);
  void Conclude(Attempt& done, HttpResult&& result);
  void Lose(Attempt& attempt);

  void Report(RequestPhase phase) {
    if (progress_ != nullptr) progress_->store(phase, std::memory_order_relaxed);
  }
  void EndCancelled();
  void End();

  const Environment& environment_;
  S3Loop& home_;
  std::unique_ptr<S3Exchange> exchange_;
  RequestProgress* const progress_;
  Attempts attempts_;           // in flight: one, or two until the first answers
  Attempts losers_;             // cancelled, or answered with an error; not ended yet
  std::optional<Timer> timer_;  // while waiting to send
  TimerQueue::Id hedge_ = 0;    // 0, or over, or until the second request
  TimerQueue::Id look_ = 0;     // 0, or over, or until the next look at the body
  std::optional<std::stop_callback<OnStop>> stop_;
  int requests_ = 0;  // sent, but for second ones
  size_t place_ = 0;  // in the loop's `live`, counted from 1
  bool has_permit_ = false;
  bool waits_for_permit_ = false;
  bool waits_for_credentials_ = false;
  bool cancelled_ = false;
  bool exhausted_ = false;  // cancelled because a step has thrown
  bool ended_ = false;
};

}  // namespace millrace
