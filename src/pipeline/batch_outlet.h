#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "base/memory_budget.h"
#include "pipeline/batch_ring.h"
#include "pipeline/batch_source.h"
#include "pipeline/stall_ledger.h"

namespace millrace {

/// The consumer's end of a BatchSource. It has the slots of batches, the batches that are ready, the count of those
/// that the consumer holds, the report, and the account of its waiting.
///
///   { const std::lock_guard lock(mutex_); outlet_.Put(std::move(batch)); }  // the owner, in order
///   absl::StatusOr<std::optional<Batch>> next = outlet_.Next();             // the consumer
///
/// The outlet shares the mutex of its owner. Members below "The consumer" lock it; those below "The owner" and all
/// hooks are called with it held. The consumer is one thread at a time; the others are any thread.
///
/// The end comes after the batches that were put before it. A failure is an end, and is returned again. A consumer that
/// holds all slots gets ResourceExhausted, which is no end. If WaitReady gives up a wait, the wait lasts until Next
/// returns.
///
/// The destructor calls Hooks::returned for batches that the consumer has not taken, so members that hooks use are
/// declared before the outlet. Slots that others hold may outlive it.
class BatchOutlet {
 public:
  using Time = StallLedger::Time;

  struct Options {
    uint64_t slot_bytes = 0;
    uint64_t slots = 0;
    std::string budget;  // of which the slots are, for messages: "memory budget of 1.0 GiB"
    size_t parts = 0;    // of the source
    Position start;
    bool log_damage = true;
  };
  struct Hooks {
    std::function<StallCause()> cause;        // what the consumer waits for now
    std::function<void(const Batch&)> taken;  // the consumer gets this batch
    std::function<void()> returned;           // a slot has come back
    std::function<void()> waits = [] {};      // waiting_since() has changed by a call of the consumer
  };

  /// Takes `slot_memory`, which is given back with the last slot. `mutex` outlives the outlet.
  BatchOutlet(std::mutex& mutex, const Options& options, Reservation slot_memory, Hooks hooks);

  // ---- The consumer

  /// These are as those of BatchSource. The report has the facts of batches and of waiting. If the options say so, the
  /// first damaged sample is logged.
  absl::StatusOr<std::optional<Batch>> Next();
  bool WaitReady(std::chrono::nanoseconds limit);
  LoaderReport report() const;

  // ---- The owner

  /// This is thread-safe, with or without the mutex.
  BatchRing& ring() { return ring_; }
  /// Adds the next batch, in a slot of the ring. May throw std::bad_alloc.
  void Put(Batch batch);
  /// Ends the batches: there are no more. OK means after the last epoch.
  void End(absl::Status status);
  /// Returns the number of batches that the consumer has not taken.
  uint64_t untaken() const { return batches_.size(); }
  /// The number of slots that the consumer does not hold.
  uint64_t unheld() const { return slots_ - held_; }
  /// The time since which the consumer waits; nullopt if it does not wait, or does not have to any more.
  std::optional<Time> waiting_since() const { return ready() ? std::nullopt : asked_; }

 private:
  using Lock = std::unique_lock<std::mutex>;

  bool ready() const { return !batches_.empty() || end_ || held_ == slots_; }
  bool Await(Lock* lock, std::chrono::nanoseconds limit);

  std::mutex& mutex_;
  const uint64_t slot_bytes_;
  const uint64_t slots_;
  const std::string budget_;
  const Hooks hooks_;
  const bool log_damage_;
  std::condition_variable changed_;
  uint64_t held_ = 0;  // slots of batches that the consumer has taken and still holds
  std::optional<absl::Status> end_;
  std::optional<Time> asked_;  // the begin of a wait that Next has not ended
  LoaderReport report_;
  StallLedger ledger_;
  BatchRing ring_;
  std::deque<Batch> batches_;
};

}  // namespace millrace
