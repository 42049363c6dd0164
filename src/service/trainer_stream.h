#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "net/runtime.h"
#include "pipeline/loader.h"
#include "service/placement.h"
#include "service/step_board.h"
#include "service/stream_protocol.h"
#include "service/stream_spec.h"
#include "service/worker_calls.h"

namespace millrace {

/// What all streams of a trainer share. Everything outlives the streams.
struct StreamContext {
  Runtime& runtime;
  const Source& source;
  const LoaderOptions& options;  // of the trainer's loader
  const StreamSteps& steps;
  StepBoard& board;
  Placement& placement;
  WorkerCalls& calls;
  std::atomic<bool>& hedging;  // a stream is open at two workers; never two of them at a time
  StreamSpec spec;             // but for the options
  uint64_t window = 0;         // batches of a stream that are asked for or wait
  uint64_t frame_limit = 0;    // bytes of one on the wire
  uint64_t worker_memory = 0;  // that a worker's loader gets
  uint64_t local_memory = 0;   // that one of this process gets
};

/// Where rows come from, as the board counts them: this process, or a worker of `placement`.
inline constexpr size_t kLocalSource = 0;
inline size_t SourceOfWorker(size_t worker) {
  return worker + 1;
}

/// One stream of a trainer: a thread that reads it from workers, or decodes it here, and puts its rows on the board.
/// Whatever fails, it goes on with the first step that has not come, elsewhere. If the next batch waits for this stream
/// only, and long, it is opened at a second worker. The destructor stops and joins; the
/// board was stopped before.
class TrainerStream {
 public:
  /// `is_local`: decoded here from the start, not for want of workers. `memory`: local_memory, reserved.
  TrainerStream(const StreamContext& context, uint64_t number, bool is_local, Reservation memory);
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
  };
  /// Outlives the stream while calls are in flight.
  struct Mailbox {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Event> events;
    bool stopping = false;
  };

  void Run();
  absl::Status Read();
  void Place();
  void MoveIfBetter();
  void Probe();
  void Send(ServiceRequest request);
  void OnAnswer(Event event);
  void OnBatch(Event event);
  void Fail(const ServiceRequest& request, StreamFailure failure, const std::string& reason);
  void CancelCalls(uint64_t but = 0);
  void MaybeHedge();
  void SettleHedge();
  bool Stopping();
  void AwaitEvents();
  HttpEndpoint EndpointOf(size_t worker) const;
  bool Deliver(WireBatch frame, size_t source);
  absl::Status OpenLocal();
  absl::Status ReadLocal();
  void CloseLocal();

  const StreamContext& context_;
  const uint64_t number_;
  const bool is_local_;
  Reservation memory_;
  StreamProtocol protocol_;
  std::unique_ptr<Loader> loader_;  // kLocal
  struct Call {
    uint64_t attempt = 0;
    std::shared_ptr<WorkerCall> call;
  };
  std::vector<Call> calls_;  // some have ended
  uint64_t filled_ = 0;      // steps whose rows are on the board
  int gone_ = 0;             // sessions, without a batch since
  // Hedging: how long a batch may take, and since when this one is waited for.
  Clock::duration hedge_after_;
  bool is_first_batch_ = true;  // of a session, for which a worker opens the data set
  uint64_t waited_step_ = UINT64_MAX;
  Clock::time_point waiting_since_;
  bool holds_hedge_ = false;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  std::thread thread_;
};

}  // namespace millrace
