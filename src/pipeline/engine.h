#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "pipeline/batch_ring.h"
#include "pipeline/decode_memory.h"
#include "pipeline/read_cache.h"
#include "pipeline/walker.h"

namespace millrace {

/// The machine behind Loader: a thread that walks, the CPU pool's threads that decode, and the consumer, who takes the
/// batches. All others only say what has happened: the callbacks of the store and of slots, which never wait for the
/// walk. One mutex guards what is handed over, and nobody works while holding it.
class Engine final : public Loader {
 public:
  /// The reservations cover plan.fetch_bytes and the slots; the latter lasts as long as the last batch. Throws what a
  /// thread or memory that the system refuses throws.
  Engine(Runtime& runtime, LoaderPlan plan, Reservation fetch_memory, Reservation slot_memory);
  ~Engine() override;

  absl::StatusOr<std::optional<Batch>> Next() override;
  bool WaitReady(std::chrono::nanoseconds limit) override;
  LoaderReport report() const override;
  const std::vector<BatchShape>& shapes() const override { return shapes_; }
  uint64_t steps_per_epoch() const override { return plan_.steps(); }
  uint64_t samples_per_epoch() const override;
  const OrderPolicy& policy() const override { return plan_.policy(); }

 private:
  using Lock = std::unique_lock<std::mutex>;
  /// What has happened since the walker looked last.
  struct News {
    std::vector<std::pair<std::unique_ptr<Fetcher::Request>, absl::Status>> fetched;
    std::vector<std::unique_ptr<Walker::Task>> decoded;
    uint64_t untaken = 0;      // batches that are ready
    uint64_t value_bytes = 0;  // of batches that were taken
    bool stopping = false;
  };

  // The walker's thread.
  void Walk();
  News AwaitNews(bool wait);
  bool Round(News news);
  void HandOut(Walker::Output output);

  // Others.
  void Send(std::unique_ptr<Fetcher::Request> request);
  void RunTask();
  void Tell(const Lock& held);  // that there are news
  bool is_urgent() const;       // with mutex_ held, as ready()
  bool ready() const;
  bool Await(Lock* lock, std::chrono::nanoseconds limit);
  absl::Status NoMemory() const;
  bool program_holds_all() const { return held_ == plan_.slots; }

  Runtime& runtime_;
  const LoaderPlan plan_;
  const std::vector<BatchShape> shapes_;
  const ReadCache reads_;
  const Reservation fetch_memory_;
  DecodeMemory decode_memory_;
  std::stop_source stop_;

  mutable std::mutex mutex_;
  std::condition_variable told_;     // the walker
  std::condition_variable changed_;  // the consumer: what ready() says
  News news_;
  std::atomic<bool> has_news_{true};                  // written with mutex_ held
  std::vector<std::unique_ptr<Walker::Task>> tasks_;  // a heap, the first ones of the first batch on top
  std::vector<std::unique_ptr<RowDecoder>> idle_decoders_;
  std::deque<Batch> batches_;
  std::optional<absl::Status> end_;  // after them
  Walker::Wait wait_;
  uint64_t held_ = 0;  // slots of batches that the consumer has taken and not let go of
  LoaderReport report_;
  StallLedger ledger_;
  bool waiting_ = false;

  std::optional<BatchRing> ring_;
  std::optional<Walker> walker_;
  std::thread thread_;
};

}  // namespace millrace
