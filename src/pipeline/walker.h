#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/batch_ring.h"
#include "pipeline/epoch_order.h"
#include "pipeline/fetcher.h"
#include "pipeline/loader_plan.h"
#include "pipeline/next_use.h"
#include "pipeline/row_decoder.h"

namespace millrace {

/// Returns the options of the plan's fetcher.
Fetcher::Options FetchOptions(const LoaderPlan& plan, std::stop_token stop = {});

/// Executes a loader's plan. It turns the plan into steps and units (rows of batches) and has their bytes fetched. It
/// passes them on to be decoded into slots of the ring, and puts the batches together. A state machine without I/O and
/// locks: its owner sends the requests, runs the tasks, and calls it when they have ended. Not thread-safe.
class Walker {
 public:
  /// Represents the reason for which the earliest unfinished unit of the next batch waits.
  struct Wait {
    StallCause cause = StallCause::kBudget;
    std::shared_ptr<const RequestProgress> request;  // if it waits for one, which tells the cause
    StallCause Now() const { return request ? CauseOf(request->load(std::memory_order_relaxed)) : cause; }
  };

  struct Unit;
  struct Step;
  /// Represents units of one step that one thread decodes. They live until OnDecoded().
  struct Task {
    Task(const LoaderPlan& loader_plan, Step* of) : plan(loader_plan), step(of) {}
    /// Decodes all of them.
    void Run(RowDecoder& decoder, const std::stop_token& stop);
    /// Returns, after it has run, whether it was the last known one of its step. Call it once, under a lock of the
    /// owner.
    bool CompletesStep() const;
    /// Returns the priority: earlier batches first.
    uint64_t priority() const;

    const LoaderPlan& plan;
    Step* const step;
    std::vector<Unit*> units;
    std::vector<absl::StatusOr<DecodedRow>> rows;  // the result of each
  };

  /// Represents the result of a round.
  struct Output {
    std::vector<std::unique_ptr<Task>> tasks;
    std::vector<Batch> batches;
    std::optional<absl::Status> end;  // after these batches comes none: OK after the last epoch
    Wait wait;
  };

  /// Keeps references to all of these, which outlive it. `threads` will decode. May throw std::bad_alloc.
  Walker(const LoaderPlan& plan, int threads, BatchRing* ring, Fetcher::Send send, std::stop_token stop);
  ~Walker();

  void OnFetched(std::unique_ptr<Fetcher::Request> request, const absl::Status& status);
  void OnDecoded(std::unique_ptr<Task> task);
  /// Records that the consumer has taken batches with so many bytes of values.
  void OnTaken(uint64_t value_bytes) { value_bytes_ -= value_bytes; }

  /// Executes one round: walks until memory or requests are used up, but not for long, and soon ends when
  /// `interrupted`. `untaken` batches wait for the consumer. Returns true if there is more to do at once; else only
  /// after an event. May throw std::bad_alloc: then call Fail().
  bool Advance(uint64_t untaken, const std::atomic<bool>& interrupted);
  /// Ends it with this status.
  void Fail(absl::Status status);
  Output Take() { return std::exchange(output_, Output{}); }

  /// Limits memory as Fetcher::SetMemory does.
  void SetFetchMemory(uint64_t bytes) { fetcher_.SetMemory(bytes); }
  const Fetcher& fetcher() const { return fetcher_; }

  /// Returns true if no request and no task is in flight.
  bool idle() const { return fetcher_.idle() && tasks_ == 0; }

 private:
  bool FetchNext();
  absl::StatusOr<bool> ReserveValues(Step& step, Unit& unit);
  void Count(Step& step, Unit& unit, uint64_t value_bytes);
  absl::StatusOr<bool> FetchReplacements();
  Unit* WalkToNextUnit();
  void Send(std::unique_ptr<Fetcher::Request> request);
  void OpenEpoch(uint64_t epoch, uint64_t consumed);
  void OpenStep();
  void CloseStep(Step& step);
  void OnReady(const UnitId& id);
  void Dispatch(Step& step);
  void GiveSlots(uint64_t untaken);
  void Finish(Step& step, Unit& unit, absl::StatusOr<DecodedRow> decoded);
  void PutTogether();
  Batch Deliver(Step& step) const;
  Wait WaitOfFront();
  Step& StepOf(uint64_t number);

  const LoaderPlan& plan_;
  const std::vector<BatchShape> shapes_;
  const int threads_;
  BatchRing* const ring_;
  const Fetcher::Send send_;
  std::optional<NextUse> next_use_;  // with a cache
  Fetcher fetcher_;
  Output output_;
  std::optional<absl::Status> walk_failed_;  // comes after the steps that were walked before
  bool ended_ = false;

  std::deque<std::unique_ptr<Step>> steps_;  // in order of delivery; the walk appends
  uint64_t opened_steps_ = 0;
  std::set<UnitId> damaged_;  // units whose replacement was not asked for yet
  int tasks_ = 0;             // handed out and not back

  // The state of the walk: the next to fetch is unit walk_unit_ of steps_.back().
  std::optional<EpochOrder> walk_order_;
  uint64_t walk_epoch_ = 0;
  uint64_t walk_consumed_ = 0;
  uint64_t walk_unit_ = 0;
  bool walk_done_ = false;
  uint64_t untaken_ = 0;
  uint64_t value_bytes_ = 0;  // that batches have, or will have, which were not taken
  IndexedSample scratch_;
  uint64_t units_ahead_ = 0;  // whose bytes were asked for and that are not decoded yet
};

}  // namespace millrace
