#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/batch_ring.h"
#include "pipeline/epoch_order.h"
#include "pipeline/fetcher.h"
#include "pipeline/loader_plan.h"
#include "pipeline/sample_decoder.h"
#include "pipeline/token_decoder.h"

namespace millrace {

/// What the plan's fetcher gets to know.
Fetcher::Options FetchOptions(const LoaderPlan& plan);

/// The machine behind Loader: a walker that turns the plan into steps and units (rows of batches), a
/// Fetcher, decode tasks on the CPU pool, and the queue of steps from which the consumer takes. One mutex guards all of
/// it; decoding and network run outside it.
class Loader::Engine {
 public:
  /// The reservations cover plan.fetch_bytes and the slots; the latter lasts as long as the last batch.
  Engine(Runtime& runtime, LoaderPlan plan, Reservation fetch_memory, Reservation slot_memory);
  ~Engine();

  absl::StatusOr<std::optional<Batch>> Next();
  bool WaitReady(std::chrono::nanoseconds limit);
  LoaderReport report() const;
  const LoaderPlan& plan() const { return plan_; }

 private:
  struct Unit;
  struct Step;
  /// What a decode task works with.
  struct Decoders {
    Decoders(const LoaderPlan& plan, std::stop_token stop) : samples(plan, std::move(stop)), tokens(plan) {}
    SampleDecoder samples;
    TokenDecoder tokens;
  };

  // How long the walker goes on at once, within the mutex: where samples are small, taking neighbours along is so much
  // work that nobody must wait for all of it. Short for threads that come by with something else.
  static constexpr std::chrono::microseconds kSlice{2000};
  static constexpr std::chrono::microseconds kShortSlice{200};

  // All of these run with mutex_ held.
  void Advance(std::chrono::microseconds slice);
  void Advance() { Advance(kShortSlice); }
  void AdvanceSoon(std::chrono::microseconds pause = {});
  void WalkAhead(std::chrono::microseconds slice);
  bool FirstBatchComesFirst() const;
  bool FetchNext();
  Unit* WalkToNextUnit();
  void OpenEpoch(uint64_t epoch, uint64_t consumed);
  void OpenStep();
  void CloseStep(Step& step);
  void Fail(absl::Status status);
  void OnFetched(const UnitId& id);
  void Dispatch(Step& step);
  bool FrontIsReady() const;
  bool ConsumerHoldsAll() const;
  StallCause FrontCause() const;
  void FinishUnit(Step& step, Unit& unit, absl::StatusOr<DecodedRow> decoded);
  Batch TakeFront();
  Batch ViewOf(Step& step) const;

  // Decode tasks, without the lock.
  void RunUnits(Step* step, const std::vector<Unit*>& units);
  absl::StatusOr<DecodedRow> Decode(Decoders& decoders, Step& step, const Unit& unit);
  std::unique_ptr<Decoders> BorrowDecoders();

  Runtime& runtime_;
  const LoaderPlan plan_;
  const std::vector<BatchShape> shapes_;
  const Reservation fetch_memory_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a step became ready, or work ended
  bool stopping_ = false;
  int tasks_ = 0;  // submitted to the CPU pool and not finished
  bool advancing_soon_ = false;
  std::stop_source stop_;
  absl::Status failure_;  // of the walk or of a delivered batch; final

  std::unique_ptr<Fetcher> fetcher_;
  std::deque<std::unique_ptr<Step>> steps_;  // in order of delivery; the walker appends
  uint64_t taken_steps_ = 0;                 // of those before them
  std::vector<std::unique_ptr<Decoders>> idle_decoders_;

  // The walker: the next to fetch is unit walk_unit_ of steps_.back().
  std::optional<EpochOrder> walk_order_;
  uint64_t walk_epoch_ = 0;
  uint64_t walk_consumed_ = 0;
  uint64_t walk_unit_ = 0;
  bool walk_done_ = false;
  uint64_t units_ahead_ = 0;                          // whose bytes were asked for and that are not decoded yet
  std::chrono::steady_clock::duration head_start_{};  // of the walk, before the first batch

  // What the consumer has received.
  Position received_;
  uint64_t received_samples_ = 0;
  uint64_t received_tokens_ = 0;
  uint64_t received_places_ = 0;
  std::vector<uint64_t> received_of_parts_;
  Uint128 received_digest_;
  StallLedger ledger_;
  bool waiting_ = false;
  std::vector<QuarantinedSample> quarantine_;
  uint64_t quarantined_ = 0;

  std::unique_ptr<BatchRing> ring_;  // last: its callback uses what is above
};

}  // namespace millrace
