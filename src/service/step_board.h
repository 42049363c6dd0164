#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/batch_layout.h"
#include "pipeline/batch_ring.h"
#include "pipeline/stall_ledger.h"
#include "service/stream_steps.h"

namespace millrace {

/// Where the streams of a trainer put their rows: straight into the batches, which leave in order when the last row is
/// there. Streams run ahead of each other by as many batches as there are slots that the program does not hold.
/// Thread-safe; Next and WaitReady for one thread at a time.
class StepBoard {
 public:
  StepBoard(const StreamSteps& steps, const BatchLayout& layout, uint64_t slots, Reservation slot_memory, size_t parts);
  ~StepBoard();

  /// The rows of a stream for a step, which come from `source`. Each stream in the order of steps, on a thread of its
  /// own. Waits for a slot; false: the board was stopped.
  bool Fill(uint64_t step, uint64_t stream, WireBatch frame, size_t source, bool is_local);
  /// Whether the next batch lacks the rows of this stream only, for which it is `step`.
  bool WaitsFor(uint64_t step, uint64_t stream) const;
  /// There will be no rows of `step`, nor of later ones.
  void Fail(uint64_t step, absl::Status status);
  /// Streams do not wait any more.
  void Stop();

  absl::StatusOr<std::optional<Batch>> Next();
  bool WaitReady(std::chrono::nanoseconds limit);
  /// Without `workers`; their rows are rows(), by source. Sources that have none may be missing at its end.
  LoaderReport report() const;
  std::vector<uint64_t> rows() const;

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Step {
    StreamSteps::Place place;
    std::shared_ptr<MutableByteSpan> slot;
    Batch batch;
    std::vector<std::optional<size_t>> sources;               // of each stream; absent: its rows have not come
    std::vector<std::vector<QuarantinedSample>> quarantined;  // likewise
    uint64_t missing = 0;                                     // streams
  };

  Step* Acquire(uint64_t step, Lock& lock);
  Step* Open(uint64_t step);
  void Begin(Step& step);
  void CopyRows(const Step& step, uint64_t stream, WireBatch& frame, Batch* batch) const;
  void Finish(Step& step) const;
  bool ready() const;
  bool Await(Lock& lock, std::chrono::nanoseconds limit);
  StallCause CauseNow() const;

  const StreamSteps& steps_;
  const BatchLayout layout_;
  const uint64_t slots_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // the consumer
  std::condition_variable room_;     // streams
  std::deque<std::unique_ptr<Step>> open_;
  uint64_t first_ = 0;  // step of the first one
  std::optional<uint64_t> failed_;
  absl::Status failure_;
  bool stopping_ = false;
  uint64_t held_ = 0;        // slots of batches that the consumer has and did not let go of
  std::vector<bool> local_;  // streams that this process decodes
  std::vector<uint64_t> rows_;
  LoaderReport report_;
  StallLedger ledger_;
  bool waiting_ = false;
  std::optional<BatchRing> ring_;
};

}  // namespace millrace
