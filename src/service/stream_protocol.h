#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "service/frame.h"

namespace millrace {

/// Holds a batch of a stream and the memory that its arrays are in.
struct ReceivedBatch {
  std::shared_ptr<void> memory;
  WireBatch frame;
  size_t source = 0;  // the worker
};

/// A trainer sends this to a worker.
struct ServiceRequest {
  enum class Kind : uint8_t {
    kOpen,   // a session that begins with `step`
    kNext,   // the batch of `step`, which is number `sequence` of the session
    kClose,  // the session
  };
  Kind kind = Kind::kNext;
  size_t worker = 0;
  uint64_t attempt = 0;
  std::string session;
  uint64_t step = 0;
  uint64_t sequence = 0;
};

/// This is one stream as its trainer sees it: where it is read, what is requested, what has come. It is a state machine
/// without I/O: the caller sends the requests and reports their results. Every opening is an attempt with a number;
/// late results of an earlier one change nothing. Steps are handed out in order and once each, whatever fails.
class StreamProtocol {
 public:
  /// `window`: batches that are asked for, or have come and were not taken; `widest`: what it may grow to. `end`: one
  /// past the last step, UINT64_MAX if there is none.
  StreamProtocol(uint64_t window, uint64_t widest, uint64_t end) : window_(window), widest_(widest), end_(end) {}

  enum class State : uint8_t {
    kUnplaced,  // Assign has to be called
    kOpening,
    kStreaming,
    kLocal,  // this process decodes it, from missing() on
  };
  State state() const { return state_; }
  size_t worker() const { return worker_; }  // kOpening, kStreaming
  uint64_t attempt() const { return attempt_; }
  bool ended() const { return next_ == end_; }

  /// These return the step that comes next, and the first one that has not come.
  uint64_t next() const { return next_; }
  uint64_t missing() const;

  /// In kUnplaced, it reads from this worker on, or locally.
  void Assign(std::optional<size_t> worker);
  /// Leaves the worker, or local reading. Batches that have come in order stay.
  void Release();

  /// One batch more may be in flight, up to `widest`.
  void Widen() { window_ = std::max(window_, std::min(window_ + 1, widest_)); }
  uint64_t window() const { return window_; }

  /// Returns the requests to send now, each once. No batch of step `before` or a later one is requested, except for the
  /// second time.
  std::vector<ServiceRequest> TakeRequests(uint64_t before = UINT64_MAX);
  /// kStreaming, and no batch is in flight.
  bool asks_nothing() const { return state_ == State::kStreaming && asked_.empty() && !hedge_; }

  // These report the results of a request of `attempt`. They return false if the result is not needed any more.
  bool OnOpened(uint64_t attempt, std::string session);
  bool OnBatch(uint64_t attempt, uint64_t step, ReceivedBatch batch);
  bool OnNotYet(uint64_t attempt, uint64_t step);
  /// The session is not used any more, and is closed. The stream continues with its second opening, if it is hedged, or
  /// is kUnplaced.
  bool OnFailure(uint64_t attempt);

  // If a worker takes long, the stream is opened a second time, at another one, from missing() on. The worker that is
  // first with the batch of this step has the stream from then on, and the other session is closed. The state is
  // kOpening or kStreaming, and not hedged yet.
  void Hedge(size_t worker);
  bool hedged() const { return hedge_.has_value(); }
  /// The second opening failed, or is of no use any more. False: this attempt is none, or no hedge.
  bool EndHedge(uint64_t attempt);

  /// Returns the batch of step next(), if it has come, which then is the step after it.
  std::optional<ReceivedBatch> TakeNext();
  /// kLocal, nothing left to take: the caller has the batch of step next() from elsewhere.
  void SkipNext() { ++next_; }

 private:
  struct Second {
    uint64_t attempt = 0;
    size_t worker = 0;
    uint64_t step = 0;
    std::string session;  // "": is being opened
    bool asked = false;
  };
  void Close();
  void PushClose(size_t worker, uint64_t attempt, const std::string& session);
  void DropHedge();
  void DropRequests(uint64_t but = 0);
  void GoOnWithHedge();
  bool IsHedge(uint64_t attempt) const { return hedge_ && hedge_->attempt == attempt; }
  bool IsCurrent(uint64_t attempt) const {
    return attempt == attempt_ && (state_ == State::kOpening || state_ == State::kStreaming);
  }

  uint64_t window_;
  const uint64_t widest_;
  const uint64_t end_;
  State state_ = State::kUnplaced;
  size_t worker_ = 0;
  uint64_t attempt_ = 0;
  uint64_t last_attempt_ = 0;
  std::string session_;
  uint64_t first_ = 0;  // step of the session
  uint64_t next_ = 0;
  std::map<uint64_t, ReceivedBatch> come_;
  std::set<uint64_t> asked_;
  std::optional<Second> hedge_;
  std::vector<ServiceRequest> requests_;
};

}  // namespace millrace
