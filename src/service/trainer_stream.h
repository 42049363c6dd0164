#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "net/runtime.h"
#include "pipeline/loader.h"
#include "service/local_stream.h"
#include "service/placement.h"
#include "service/silence.h"
#include "service/step_board.h"
#include "service/stream_protocol.h"
#include "service/stream_spec.h"
#include "service/way_delay.h"
#include "service/worker_calls.h"

namespace millrace {

/// Holds what all streams of a trainer share. Everything outlives the streams.
struct StreamContext {
  Runtime& runtime;
  const Source& source;
  const LoaderOptions& options;  // of the trainer's loader
  const StreamSteps& steps;
  StepBoard& board;
  Placement& placement;
  WorkerCalls& calls;
  StreamSpec spec;             // but for the options
  uint64_t window = 0;         // batches of a stream that are asked for or wait, at first,
  uint64_t widest = 0;         // and at most
  uint64_t frame_limit = 0;    // bytes of one on the wire
  uint64_t worker_memory = 0;  // that a worker's loader gets
  uint64_t local_memory = 0;   // that one of this process gets
};

/// One stream of a trainer is a thread that reads it from workers, or decodes it here, and puts its rows on the board.
/// After any failure, it continues elsewhere with the first step that has not come. If the program waits for its
/// worker, and another one would be faster, it is opened there a second time, or moves. The destructor stops and joins;
/// the board was stopped before.
class TrainerStream {
 public:
  /// `memory` is the local_memory, reserved.
  TrainerStream(const StreamContext& context, uint64_t number, Reservation memory);
  ~TrainerStream();
  TrainerStream(const TrainerStream&) = delete;
  TrainerStream& operator=(const TrainerStream&) = delete;

  /// Ends soon.
  void Stop();

 private:
  using Clock = std::chrono::steady_clock;
  struct Event {
    ServiceRequest request;
    WorkerAnswer answer;
    Clock::time_point sent;
    Clock::time_point came;
    bool is_batch() const { return request.kind == ServiceRequest::Kind::kNext; }
  };
  enum class HedgeEnd : uint8_t { kWon, kLost, kStays, kOver };
  /// Outlives the stream while calls are in flight.
  struct Mailbox {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Event> events;
    std::set<uint64_t> attempts;  // whose batches are of interest: of others, what comes late is dropped at once
    bool stopping = false;
  };

  void Run();
  absl::Status Read();
  void Place();
  void BeginAt(size_t source, Clock::time_point since);
  void MoveIfBetter();
  void Probe();
  void Send(ServiceRequest request);
  void SendRequests();
  void OnAnswer(Event event);
  absl::StatusOr<WireBatch> Unpack(WorkerAnswer* answer) const;
  void OnBatch(Event event);
  bool EndSession(uint64_t attempt);
  void Fail(const ServiceRequest& request, StreamFailure failure, const std::string& reason);
  void CancelCalls(uint64_t but = 0);
  bool IsAwaitedBatch(const Event& event) const;
  void MeasureBatch(const Event& event, bool was_awaited, bool of_hedge);
  void WidenIfDelayed(const Event& event);
  Clock::time_point LastHeard(Clock::time_point now) const;
  void LeaveStraggler();
  void Leave();
  void SettleHedge(HedgeEnd end);
  bool Stopping();
  void AwaitEvents();
  HttpEndpoint EndpointOf(size_t worker) const;
  absl::Status ReadLocal();
  bool Deliver(WireBatch frame, size_t source);

  const StreamContext& context_;
  const uint64_t number_;
  StreamProtocol protocol_;
  LocalStream local_;
  struct Call {
    uint64_t attempt = 0;
    std::weak_ptr<WorkerCall> call;  // gone when it has ended
  };
  std::vector<Call> calls_;  // for batches; some have ended
  Call opening_;             // the last one of a session that is no hedge,
  Call hedge_opening_;       // and of one that is
  Silence silence_;
  uint64_t filled_ = 0;  // steps whose rows are on the board
  int gone_ = 0;         // sessions, without a batch since
  // These measurements of the source serve to find stragglers and to size the window.
  size_t source_ = kLocalSource;
  bool is_first_batch_ = true;                        // of a session, for which a worker opens the data set
  std::map<uint64_t, Clock::time_point> first_sent_;  // of the session's steps: when they were asked for
  Clock::time_point last_came_{};                     // batch of the source
  WayDelay delay_;                                    // between here and the source
  Clock::time_point idle_since_{};                    // there was nothing to do but to wait for answers,
  Clock::time_point idle_until_{};                    // the last time
  bool holds_hedge_ = false;
  Clock::time_point hedged_at_{};
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  std::thread thread_;
};

}  // namespace millrace
