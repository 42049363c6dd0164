#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "decode/decode_memory.h"
#include "pipeline/batch_outlet.h"
#include "pipeline/memory_shares.h"
#include "pipeline/read_cache.h"
#include "pipeline/walker.h"

namespace millrace {

/// Represents the part of the process's budget that an Engine has.
struct EngineMemory {
  Reservation slots;
  Reservation fetch;                            // all else; of a loader with a budget of its own
  std::unique_ptr<MemoryShares::Member> share;  // of a loader without one
};

/// Represents the implementation of Loader: a thread that walks, the CPU pool's threads that decode, and the consumer,
/// which takes the batches. All others only report events: the callbacks of the store and of slots, which never wait
/// for the walk. One mutex guards the data that are passed between threads, and no thread works while it holds the
/// mutex.
class Engine final : public Loader {
 public:
  /// Starts the walker's thread. The reservation of slots lasts as long as the last batch. If the system refuses a
  /// thread or memory, it throws the exception of that.
  Engine(Runtime& runtime, LoaderPlan plan, EngineMemory memory);
  ~Engine() override;

  absl::StatusOr<std::optional<Batch>> Next() override { return outlet_.Next(); }
  bool WaitReady(std::chrono::nanoseconds limit) override { return outlet_.WaitReady(limit); }
  LoaderReport report() const override;
  const std::vector<BatchShape>& shapes() const override { return shapes_; }
  uint64_t steps_per_epoch() const override { return plan_.steps(); }
  uint64_t samples_per_epoch() const override;
  const OrderPolicy& policy() const override { return plan_.policy(); }

 private:
  using Lock = std::unique_lock<std::mutex>;
  /// Represents the events since the walker looked last.
  struct News {
    std::vector<std::pair<std::unique_ptr<Fetcher::Request>, absl::Status>> fetched;
    std::vector<std::unique_ptr<Walker::Task>> decoded;
    uint64_t untaken = 0;      // batches that are ready
    uint64_t value_bytes = 0;  // of batches that were taken
    bool stopping = false;
  };

  // Runs on the walker's thread.
  void Walk();
  News AwaitNews(bool wait);
  bool Round(News news);
  void ShareMemory();
  void HandOut(Walker::Output output);

  // Others.
  void Send(std::unique_ptr<Fetcher::Request> request);
  void RunTask();
  void Tell();             // that there are news; with mutex_ held
  bool is_urgent() const;  // whether there are urgent news; with mutex_ held
  absl::Status NoMemory() const;

  Runtime& runtime_;
  const LoaderPlan plan_;
  const std::vector<BatchShape> shapes_;
  const ReadCache reads_;
  const Reservation fetch_memory_;
  const std::unique_ptr<MemoryShares::Member> share_;
  DecodeMemory decode_memory_;
  std::stop_source stop_;

  mutable std::mutex mutex_;
  std::condition_variable told_;  // the walker
  News news_;
  std::atomic<bool> has_news_{true};                  // written with mutex_ held
  std::vector<std::unique_ptr<Walker::Task>> tasks_;  // a heap, the first ones of the first batch on top
  std::vector<std::unique_ptr<RowDecoder>> idle_decoders_;
  Walker::Wait wait_;
  std::atomic<uint64_t> item_bytes_{0};     // that the system has given for items
  std::atomic<uint64_t> landing_bytes_{0};  // that the system has given for runs in flight
  BatchOutlet outlet_;
  Walker walker_;
  std::thread thread_;
};

}  // namespace millrace
