#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace millrace {

/// Measures how fast the sources of a trainer's rows are (its workers, and this process), and for which of them the
/// program waits. From this follows when a source is a straggler: not by a fixed time, but if others are faster. Pure:
/// the caller brings the time. Not thread-safe.
class WorkerPaces {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  /// A stream has received a batch of `source`, for which it waited so long, with nothing else to do. The wait begins
  /// when it asked for the batch, or when the batch before came, whichever is later. `waited` is nullopt if it did not
  /// wait. Only batches that are waited for show how fast a source is: one that is ahead of the program is held back by
  /// the program. `opens` says that it is the first one of a session.
  void OnBatch(size_t source, std::optional<Duration> waited, bool opens);
  /// From now on the program waits for rows which only this source still has to send; nullopt: it does not wait, or
  /// waits for several sources.
  void OnAwaited(std::optional<size_t> source, Time now);
  /// The number of streams of `source` changes by `change` to `streams`. Each of them will be faster, or slower, as far
  /// as the source is bound by its CPUs. Earlier measurements count little from now on.
  void OnStreams(size_t source, size_t streams, int change, Time now);

  /// Returns the time that a stream waits for a batch of `source`, if it has to; nullopt if it never had to.
  std::optional<Duration> PaceOf(size_t source) const;

  // ---- One batch that is late: the stream is opened a second time

  /// Returns how long the program waits for a batch of `source` before its stream is opened at `second`, too. The time
  /// is several times as long as `second` needs for one batch, and is longer for a while if that has not helped before.
  /// `opens` says that it is the first batch of a session, for which a worker opens the data set. `suspect` says that
  /// the source was a straggler not long ago.
  Duration HedgeDelay(size_t source, size_t second, bool opens, bool suspect, Time now) const;
  /// The first session was faster after all, or the second one has failed.
  void OnHedgeLost(size_t source, Time now);
  void OnHedgeWon(size_t source);

  // ---- A source that is slow all the time: it gives a stream away

  /// Returns whether a stream of `source`, which has `streams`, should move to `other`, which has `others`. That is so
  /// if the program has waited for `source` alone for a good part of the time, and would wait clearly less.
  bool ShouldGive(size_t source, size_t streams, size_t other, size_t others, Time now) const;
  /// Returns whether the program waits for `source`, whatever others could do.
  bool IsAwaited(size_t source, Time now) const;

 private:
  struct Pace {
    double seconds = 0;         // of a batch that is waited for, lately
    uint64_t waits = 0;         // that it is the mean of
    uint64_t batches = 0;       // since its streams have changed
    double opening = 0;         // seconds of the first batch of a session, the last one
    Duration awaited{};         // time that the program waited for this source only, since `counted_from`
    std::optional<Time> since;  // it is waiting now
    Time counted_from{};
    bool counted = false;  // counted_from is set
    int lost = 0;          // hedges without use, one after the other
    Time last_lost{};
  };
  Pace& At(size_t source);
  const Pace* Find(size_t source) const { return source < paces_.size() ? &paces_[source] : nullptr; }

  std::vector<Pace> paces_;
  std::optional<size_t> awaited_;
};

}  // namespace millrace
