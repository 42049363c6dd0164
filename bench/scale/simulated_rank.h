#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <unordered_map>
#include <vector>

#include "event_queue.h"
#include "pipeline/batch_ring.h"
#include "pipeline/stall_ledger.h"
#include "pipeline/walker.h"
#include "simulated_store.h"

namespace millrace {

/// Represents the work of a rank's threads on the bytes.
struct DecodeModel {
  int threads = 1;
  double sample_ms = 0;  // of one thread, for a sample
};

/// A loader of one rank in simulated time: the real Walker, with its Fetcher, arena and batch ring, driven as Engine
/// drives it. Its bytes are never written, and decoding is a pause. Not thread-safe.
class SimulatedRank {
 public:
  struct Counts {
    uint64_t requests = 0;           // that the walker made: what is made again counts once
    uint64_t bytes = 0;              // of them
    uint64_t wanted = 0;             // bytes of the samples that they were made for; the rest lay between these
    uint64_t samples = 0;            // fetched
    EventQueue::Nanos decoding = 0;  // time of all threads
    Counts& operator+=(const Counts& other);
  };

  /// `events` and `client` outlive it. `on_batch` is called, as an event, when a batch has become ready.
  SimulatedRank(EventQueue* events, SimulatedClient* client, LoaderPlan plan, const DecodeModel& decode,
                std::function<void()> on_batch);
  ~SimulatedRank();
  SimulatedRank(const SimulatedRank&) = delete;
  SimulatedRank& operator=(const SimulatedRank&) = delete;

  /// The loader is made: from now on it reads ahead.
  void Begin() { Walk(); }
  bool has_batch() const { return !batches_.empty(); }
  /// has_batch(). Its slot returns when the batch dies, which must be while this lives.
  Batch Take();
  /// The consumer begins to wait for a batch; it ends with Take.
  void Wait();

  /// Not OK: the walk has failed.
  const absl::Status& status() const { return status_; }
  bool ended() const { return ended_; }
  const Counts& counts() const { return counts_; }
  StallReport stalls() const { return ledger_.report(); }
  const LoaderPlan& plan() const { return plan_; }

 private:
  using Request = Fetcher::Request;

  void Schedule();
  void Walk();
  void Send(std::unique_ptr<Request> request);
  void OnFetched(uint64_t number);
  void StartTasks();
  void OnDecoded(uint64_t number);
  void Charge();

  EventQueue* const events_;
  SimulatedClient* const client_;
  const LoaderPlan plan_;
  const DecodeModel decode_;
  const std::function<void()> on_batch_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::stop_source stop_;

  bool scheduled_ = false;
  bool waiting_ = false;
  bool ended_ = false;
  absl::Status status_;
  Walker::Wait wait_;
  StallLedger ledger_;
  Counts counts_;

  uint64_t numbered_ = 0;
  std::unordered_map<uint64_t, std::unique_ptr<Request>> requests_;  // in flight
  std::vector<std::unique_ptr<Walker::Task>> tasks_;  // not begun: a heap, those of the first batch on top
  std::unordered_map<uint64_t, std::unique_ptr<Walker::Task>> running_;
  std::deque<Batch> batches_;
  BatchRing ring_;
  Walker walker_;  // the first to go
};

}  // namespace millrace
