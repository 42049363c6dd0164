#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/batch_layout.h"
#include "pipeline/batch_outlet.h"
#include "service/placement.h"
#include "service/rows_place.h"
#include "service/stream_steps.h"

namespace millrace {

/// Says how many bytes of values (texts, arrays, results of a function) are on a board, beside its slots.
struct BoardValues {
  uint64_t ahead = 0;    // of rows that came before the program needed their step
  uint64_t of_step = 0;  // of rows that came when it did
  // These are the budget of these values, for messages, and the share of a larger one that of_step would be at least.
  uint64_t memory = 0;
  uint64_t share = 8;
};

/// The streams of a trainer put their rows here, directly into the batches, which leave in order when their last row
/// has arrived. A stream may be ahead of another one by as many batches as there are slots that the program does not
/// hold, if their values fit. Thread-safe.
class StepBoard {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// This is called, under the board's lock, when the program begins to wait for rows which only one source still has
  /// to send, and when that ends (WorkerPaces::OnAwaited).
  using OnAwaited = std::function<void(std::optional<size_t> source, Time now)>;

  /// The caller has reserved memory for `values`.
  StepBoard(const StreamSteps& steps, const BatchLayout& layout, uint64_t slots, Reservation slot_memory,
            const BoardValues& values, size_t parts, OnAwaited on_awaited);

  /// Returns the place of a stream's rows for a step, for a call that is about to receive them. The place belongs to
  /// the call until the last pointer to it is released. Returns null if there is no slot for the step yet, if the rows
  /// are there already, or if another call receives them. Does not wait.
  std::shared_ptr<RowsPlace> Claim(uint64_t step, uint64_t stream);
  /// Adds the rows of a stream for a step, which come from `source`. Each stream calls this in the order of steps, on a
  /// thread of its own. Waits for a slot, and for room for their values. Returns false if the board was stopped, or if
  /// the values of the step exceed their bound, which Next then reports. Before this call, all calls that receive rows
  /// of the same stream and step into their place were cancelled, except the one that has brought `frame`.
  bool Fill(uint64_t step, uint64_t stream, WireBatch frame, size_t source);
  /// Returns the first step for which there is no slot: its rows would be received elsewhere, wait, and be copied.
  uint64_t Room() const;
  /// Waits until there is a slot for the step, the board was stopped, or `limit` has passed.
  void AwaitRoom(uint64_t step, std::chrono::nanoseconds limit);
  /// The stream's next rows will come from this source.
  void SetSource(uint64_t stream, size_t source);
  /// Describes how the program waits for the rows of a stream.
  struct Wait {
    Time since;                 // for the batch
    std::optional<Time> alone;  // since when only rows of this stream's source are missing; absent: others are, too
  };
  /// Returns nullopt if the program does not wait for these rows of `step`.
  std::optional<Wait> WaitFor(uint64_t step, uint64_t stream) const;
  /// There will be no rows of `step`, nor of later ones.
  void Fail(uint64_t step, absl::Status status);
  /// Streams do not wait any more.
  void Stop();

  /// These members are for the consumer. The report does not have `workers`.
  BatchOutlet& outlet() { return outlet_; }
  const BatchOutlet& outlet() const { return outlet_; }
  /// Returns the rows of the batches that the consumer has taken, by source. Sources without rows may be missing at its
  /// end.
  std::vector<uint64_t> rows() const;

 private:
  using Lock = std::unique_lock<std::mutex>;
  /// Holds the place where a call receives rows, or has received some.
  struct Claimed {
    std::shared_ptr<RowsPlace> place;  // null: nowhere
    std::weak_ptr<RowsPlace> holder;   // the call, or what it has brought
  };
  struct Step {
    StreamSteps::Place place;
    std::shared_ptr<MutableByteSpan> slot;
    Batch batch;
    std::vector<std::optional<size_t>> sources;               // of each stream; absent: its rows have not come
    std::vector<std::vector<QuarantinedSample>> quarantined;  // of each stream
    std::vector<Claimed> claims;                              // of each stream
    std::vector<bool> filling;                                // of each stream: its rows come, or have come
    uint64_t missing = 0;                                     // streams
    uint64_t early_bytes = 0;  // of values of rows that came before it was the first step
    uint64_t late_bytes = 0;   // of those that came since
  };

  Step* Acquire(uint64_t step, uint64_t value_bytes, Lock& lock);
  Step* Open(uint64_t step);
  void Begin(Step& step);
  std::vector<RowsPlace::Array> PlacesOf(const Step& step, uint64_t stream) const;
  void CopyRows(const Step& step, uint64_t stream, WireBatch& frame, Batch* batch) const;
  bool LetIn(Step& step, bool is_first, uint64_t value_bytes);
  absl::Status TooManyValues(const Step& step, uint64_t value_bytes) const;
  void FailLocked(uint64_t step, absl::Status status);
  void Finish(Step& step) const;
  void OfferFirst();
  void OnTaken();
  uint64_t RoomLocked() const { return first_ + outlet_.unheld(); }
  bool IsMissing(uint64_t stream) const { return open_.empty() || !open_.front()->sources[stream]; }
  void UpdateAwaited();
  StallCause CauseNow() const;

  const StreamSteps& steps_;
  const BatchLayout layout_;
  const BoardValues values_;

  mutable std::mutex mutex_;
  std::condition_variable room_;  // streams
  std::deque<std::unique_ptr<Step>> open_;
  uint64_t first_ = 0;        // step of the first one
  uint64_t early_bytes_ = 0;  // of all of them
  std::optional<uint64_t> failed_;
  absl::Status failure_;
  bool stopping_ = false;
  std::vector<std::optional<size_t>> next_sources_;  // of streams; absent: not known yet
  std::vector<uint64_t> rows_;
  // These describe the only source for which the program waits, since when, and for which step.
  std::optional<size_t> awaited_;
  Time awaited_since_{};
  uint64_t awaited_step_ = 0;
  const OnAwaited on_awaited_;
  BatchOutlet outlet_;  // has the batch of the first step as soon as all its rows are there
};

}  // namespace millrace
