#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/batch_source.h"
#include "service/worker_paces.h"

namespace millrace {

/// Says why a worker could not continue a stream.
enum class StreamFailure : uint8_t {
  kLost,     // the worker does not answer, or what it sends is damaged: nobody should ask it for a while
  kRefused,  // the worker will not serve this loader: another version, token or data set
  kStream,   // the worker is well, but cannot serve this stream now: its memory is in use, a sample is damaged
};

/// The source of rows is a number: this process, or a worker.
inline constexpr size_t kLocalSource = 0;
inline size_t SourceOfWorker(size_t worker) {
  return worker + 1;
}

/// Says which streams this process decodes by plan, beside those for which there is no worker.
struct LocalStreams {
  uint64_t streams = 0;  // the first so many
  bool follows = false;  // they become fewer and more, as this process or the workers are what the program waits for
};

/// Assigns streams to workers. Each stream has a hash with each worker. The stream is assigned to the worker with the
/// highest hash among those that are present and do not have their share of streams yet. All loaders of a job therefore
/// spread their streams in the same way, and few streams move if a worker comes or goes.
///
/// For example, 8 streams are divided among 3 workers as 3, 3 and 2.
///
/// All workers have equal shares, except stragglers. A straggler is a worker for which the program waits, although
/// others are faster. It gives streams away, and gets its share again after a while; that time doubles as long as the
/// worker stays slow. Thread-safe; times are the caller's.
class Placement {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// `seed` is the hash of what the streams are of. `workers` are distinct. A worker is known by a number, which it
  /// keeps.
  Placement(std::vector<std::string> workers, size_t streams, LocalStreams local, uint64_t seed);

  /// Returns the worker that the stream goes to, which it keeps until it asks again. Returns nullopt if this process
  /// decodes it: by plan, or since no worker will have it now. A worker whose pause is over counts as present only
  /// after OnPresent.
  std::optional<size_t> Take(size_t stream, Time now);
  /// Returns true once: no worker would take a stream that is for workers.
  bool FirstTimeAlone(size_t stream);
  /// Returns whether the stream should move, which has three reasons:
  ///   - its worker has more than its share, or is a straggler, and another worker takes the stream;
  ///   - the stream is read here, and a worker takes it;
  ///   - this process should decode it.
  bool ShouldMove(size_t stream, Time now);

  /// Sets the workers that there are from now on, distinct. Streams leave workers that are not members any more as soon
  /// as others take them. A worker that comes, or comes back, is asked at once.
  void SetMembers(const std::vector<std::string>& workers);

  /// The program waits for rows of this source only, from now on (WorkerPaces::OnAwaited).
  void OnAwaited(std::optional<size_t> source, Time now);

  /// Returns a worker to read the stream from a second time, if the program has waited for its own one since `since`,
  /// for too long. `opens` says that it is for the first batch of a session. One stream at a time is read twice, until
  /// one of the four below.
  std::optional<size_t> Hedge(size_t stream, bool opens, Time since, Time now);
  /// The second worker was faster: the stream is read from it from now on.
  void OnHedgeWon(size_t stream, size_t worker, Time now);
  /// The first worker was faster.
  void OnHedgeLost(size_t stream, Time now);
  /// The first worker has failed, and the stream continues with the second one.
  void OnHedgeStays(size_t stream, size_t worker, Time now);
  /// Neither worker has it: the stream has left the first one.
  void OnHedgeOver();
  /// Returns whether a stream should leave its worker at once. The program has waited for the stream since `since`, and
  /// another stream has since then shown that others are faster.
  bool ShouldLeave(size_t stream, Time since, Time now);

  /// Returns whether the stream's worker, for which the program waits, has been silent for so long that it is lost. A
  /// good worker says within half a second that it has no batch yet. The time is shorter if there is another worker,
  /// unless that worker has the stream as well, and may be about to send it (`is_hedged`).
  bool IsLost(size_t stream, std::chrono::nanoseconds silent, bool is_hedged, Time now) const;
  /// A worker that no stream may have by now does not answer the request sent at `asked`. The worker is lost, unless
  /// that is known, or it has answered since.
  void OnNoAnswer(size_t worker, const std::string& reason, Time asked, Time now);

  /// Returns true if the user should hear of the failure, since something may have to be changed. Either the worker
  /// refuses this loader, for another reason than the last time. Or the worker is lost and no batch of it has come yet,
  /// so that its address may be wrong.
  bool OnFailure(size_t worker, size_t stream, StreamFailure failure, const std::string& reason, Time now);
  /// A good batch has come from the source at `came`, for which the stream waited so long (WorkerPaces::OnBatch).
  void OnBatch(size_t source, std::optional<WorkerPaces::Duration> waited, bool opens, Time came);

  /// Absent workers whose pause is over: the caller finds out whether they are back, and calls one of the two below for
  /// each.
  std::vector<size_t> ToProbe(Time now);
  void OnPresent(size_t worker, Time now);
  void OnAbsent(size_t worker, Time now);

  /// Returns HOST:PORT of a worker.
  std::string NameOf(size_t worker) const;
  /// Reports on each worker; without rows.
  std::vector<WorkerReport> report() const;

 private:
  struct State {
    WorkerReport report;
    bool member = true;
    bool present = true;
    bool probed = false;  // the caller is finding out
    Time refused_until{};
    int absences = 0;  // without an answer since
    Time back{};       // not before this
    Time heard{};      // a batch or the answer to a probe came, the last time
    size_t streams = 0;
    // A straggler gets no more streams than this, until then.
    size_t limit = 0;
    Time limited_until{};
    std::chrono::nanoseconds limited_for{};  // the last time
    Time overtaken{};                        // when a hedge of one of its streams was faster
  };
  /// Bounds the number of streams of a worker that is not a straggler: at least `least`, while there are streams, and
  /// at most `most`.
  struct Share {
    size_t least = 0;
    size_t most = 0;
    bool has_limits = false;  // those of stragglers count
  };
  size_t for_workers() const { return taken_.size() - local_; }
  bool IsUsable(size_t worker, size_t stream, Time now) const;
  size_t LimitOf(size_t worker, Time now) const;
  Share ShareOf(size_t stream, Time now) const;
  size_t LeastOf(size_t worker, const Share& share, Time now) const;
  size_t MostOf(size_t worker, const Share& share, Time now) const;
  std::optional<size_t> Best(size_t stream, bool for_least, const Share& share, Time now) const;
  bool HasBetter(size_t stream, Time now) const;
  std::optional<size_t> Fastest(std::optional<size_t> but, size_t stream, Time now) const;
  void Place(size_t stream, std::optional<size_t> worker, Time now);
  static bool Relapses(const State& state, Time now);
  void Limit(size_t worker, size_t streams, std::string_view reason, Time now);
  void Balance(size_t stream, Time now);
  bool Gives(size_t source, size_t streams, size_t worker, Time now) const;
  void SetLocal(size_t streams, Time now);
  void Add(const std::string& worker);
  void Pause(State& state, Time now) const;

  const bool local_follows_;
  const uint64_t seed_;
  mutable std::mutex mutex_;
  bool was_alone_ = false;
  size_t local_;          // the first streams, which this process decodes by plan
  size_t read_here_ = 0;  // streams
  std::chrono::nanoseconds local_back_after_{std::chrono::seconds(5)};  // doubled when it becomes none
  Time local_back_{};                                                   // not before this, if it is none
  bool hedging_ = false;
  Time hedged_since_{};                       // the program waits
  WorkerPaces paces_;                         // by source
  std::vector<State> states_;                 // of workers
  std::vector<std::optional<size_t>> taken_;  // of streams
  std::vector<bool> placed_;                  // of streams: there, or here
  std::vector<Time> placed_at_;               // of streams: when they began there, the last time
  std::vector<std::vector<Time>> blocked_;    // of streams: until when each worker will not be asked
};

}  // namespace millrace
