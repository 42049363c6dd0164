#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "net/http_server.h"
#include "pipeline/loader.h"
#include "service/open_datasets.h"
#include "service/sending_turns.h"
#include "service/stream_spec.h"
#include "service/worker_counts.h"

namespace millrace {

/// Makes an answer of a worker, with its version.
HttpReply WorkerReply(int status, std::string text);
/// Does the same for an error of a loader.
HttpReply WorkerReply(const absl::Status& status);

/// This is a stream that a worker delivers: a loader, and the requests that wait for its batches. A batch is taken from
/// the loader when its request is there, so that memory is bounded by what the loader reserves. Batches leave in order,
/// one after the other, unless one takes so long that the next one begins beside it (SendingTurns). Thread-safe; the
/// server outlives it.
class WorkerSession {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// A loader may be behind by so many batches, which another session has kept meanwhile, and continues: it has read
  /// most of them already. A loader that is further behind begins again.
  static constexpr uint64_t kMostSkipped = 32;

  /// `spec` is an encoded StreamSpec, whose memory is `memory`. `ending` are sessions that were closed, for whose
  /// memory it waits.
  WorkerSession(OpenDatasets& datasets, WorkerCounts& counts, std::string spec, Reservation memory,
                std::vector<std::weak_ptr<WorkerSession>> ending, Time now);
  /// Waits for what is in flight, unless Join did: that must not happen on an event loop.
  ~WorkerSession();

  /// Answers the request for batch `sequence`, now or later.
  void Ask(uint64_t sequence, HttpResponder responder, Time now);
  /// Answers requests that have waited for a while that there is no batch yet.
  void Tick(Time now);
  /// Ends the session soon; requests are answered that the session is gone.
  void Stop();
  /// Nothing is in flight any more: Join does not wait.
  bool stopped() const;
  /// Stops, and waits for what is in flight. Its owner calls it, once, before it releases the session.
  void Join();
  /// Returns when the last request came, or waited.
  Time last_used() const;

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Waiting {
    HttpResponder responder;
    Time since;
  };

  using Supplied = KeptBatches::Found;
  /// Supplies its batches.
  struct Supply;
  /// Reserves memory for the results of a function for a batch. While a result is made, it exists twice, as the
  /// function's and as the worker's.
  struct ResultMemory {
    Reservation sent;
    Reservation made;
  };

  void Run();
  absl::Status Serve();
  absl::Status Begin(Supply& supply) const;
  absl::Status CatchUp(Supply& supply);
  absl::StatusOr<std::optional<Supplied>> Next(Supply& supply);
  absl::StatusOr<std::unique_ptr<Loader>> MakeLoader(const Source& source, const LoaderOptions& options) const;
  absl::StatusOr<Source> OpenSource(const StreamSpec& spec);
  absl::StatusOr<std::optional<Batch>> NextBatch(Loader& loader);
  absl::Status CheckFunction(const StreamSpec& spec) const;
  absl::Status ApplyFunction(const Supply& supply, Batch* batch);
  absl::StatusOr<ResultMemory> ReserveResults(uint64_t bytes);
  HttpReply ReplyOf(Supplied supplied, bool compress) const;
  bool Compress(HttpReply* reply) const;
  bool AwaitRequest();
  std::shared_ptr<void> AwaitTurn(uint64_t bytes);
  void Answer(HttpReply reply, uint64_t rows);
  void AnswerAll(const absl::Status& status);
  void CountAwaited(Time now);

  OpenDatasets& datasets_;
  WorkerCounts& counts_;
  std::string spec_;
  Reservation spec_memory_;
  const std::vector<std::weak_ptr<WorkerSession>> ending_;
  std::vector<std::shared_ptr<const Dataset>> opened_;
  std::vector<std::weak_ptr<void>> sent_;     // memory of batches that were sent
  std::vector<std::weak_ptr<void>> results_;  // memory of results that functions have made
  SendingTurns turns_;

  mutable std::mutex mutex_;
  std::condition_variable asked_;
  std::map<uint64_t, Waiting> waiting_;
  bool awaits_turn_ = false;              // the next batch is ready, and waits to be sent
  Time awaited_counted_{};                // until then; while requests wait
  std::chrono::nanoseconds uncounted_{};  // less than a millisecond
  uint64_t next_ = 0;
  absl::Status end_;  // why there will be no batch any more; OK: there may be one
  bool stopped_ = false;
  Time last_used_;
  std::stop_source stop_;
  std::thread thread_;
};

}  // namespace millrace
