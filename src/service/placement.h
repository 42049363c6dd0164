#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/batch_source.h"

namespace millrace {

/// Why a worker could not go on with a stream.
enum class StreamFailure : uint8_t {
  kLost,     // the worker does not answer, or what it sends is damaged: nobody should ask it for a while
  kRefused,  // the worker will not serve this loader: another version, token or data set
  kStream,   // the worker is well, but cannot serve this stream now: its memory is in use, a sample is damaged
};

/// Which worker has which stream. A stream goes to that worker, among those that are present and have not their share
/// of streams already, whose hash with the stream is the highest: all loaders of a job spread their streams in the same
/// way, and few move when a worker comes or goes. Thread-safe; times are the caller's.
class Placement {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Of `streams` so many are for workers. `seed` is the hash of what they are of. `workers` are distinct. A worker is
  /// known by a number, which it keeps.
  Placement(std::vector<std::string> workers, size_t streams, size_t for_workers, uint64_t seed);

  /// The worker that the stream goes to, which it keeps until it asks again; nullopt if none will have it now. A worker
  /// whose pause is over counts as present only after OnPresent.
  std::optional<size_t> Take(size_t stream, Time now);
  /// True once: no worker would take a stream.
  bool FirstTimeAlone();
  /// Whether the stream should move to another worker, since its own one has more than its share and another one less,
  /// or, if it has none, since there is one to take it.
  bool ShouldMove(size_t stream, Time now) const;

  /// The workers that there are from now on, distinct. Streams leave those that are none any more as soon as others
  /// take them. One that comes, or comes back, is asked at once.
  void SetMembers(const std::vector<std::string>& workers);

  /// A worker to read the stream from a second time, beside the one that has it.
  std::optional<size_t> Second(size_t stream, Time now) const;
  /// The stream is read from that one from now on. The one that had it is not asked for this stream for a while.
  void Exchange(size_t stream, size_t worker, const std::string& reason, Time now);

  /// False: the worker failed for the same reason before.
  bool OnFailure(size_t worker, size_t stream, StreamFailure failure, const std::string& reason, Time now);
  /// A good batch has come from it.
  void OnBatch(size_t worker);

  /// Absent workers whose pause is over: the caller finds out whether they are back, and calls one of the two below for
  /// each.
  std::vector<size_t> ToProbe(Time now);
  void OnPresent(size_t worker);
  void OnAbsent(size_t worker, Time now);

  /// HOST:PORT of a worker.
  std::string NameOf(size_t worker) const;
  /// Of each worker; without rows.
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
    size_t streams = 0;
  };
  bool IsUsable(size_t worker, size_t stream, Time now) const;
  /// How many streams a worker has at least, while there are streams, and at most.
  struct Share {
    size_t least = 0;
    size_t most = 0;
  };
  Share ShareOf(size_t stream, Time now) const;
  std::optional<size_t> BestBelow(size_t most, size_t stream, Time now) const;
  void Add(const std::string& worker);
  void Pause(State& state, Time now) const;

  const size_t for_workers_;
  const uint64_t seed_;
  mutable std::mutex mutex_;
  bool was_alone_ = false;
  std::vector<State> states_;                 // of workers
  std::vector<std::optional<size_t>> taken_;  // of streams
  std::vector<std::vector<Time>> blocked_;    // of streams: until when each worker will not be asked
};

}  // namespace millrace
