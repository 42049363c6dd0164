#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <unordered_map>
#include <vector>

#include "base/buffer.h"
#include "base/rng.h"
#include "pipeline/arena.h"
#include "pipeline/fetch_run.h"
#include "pipeline/source.h"
#include "plan/plan.h"

namespace millrace {

/// A row of a batch: steps are counted over the life of a loader.
struct RowId {
  uint64_t step = 0;
  uint32_t row = 0;
};

/// The fetched bytes of one sample's span. Its memory returns to the arena when it dies.
class Piece {
 public:
  Piece(Arena* arena, std::byte* data, uint64_t size) : arena_(arena), data_(data), size_(size) {}
  /// Memory of its own.
  explicit Piece(Buffer reserve) : data_(reserve.data()), size_(reserve.size()), reserve_(std::move(reserve)) {}
  ~Piece() {
    if (arena_ != nullptr) arena_->Free(data_, size_);
  }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  MutableByteSpan span() { return {data_, size_}; }
  RequestPhase phase() const { return progress_->load(std::memory_order_relaxed); }

  // Under the lock of the Fetcher's owner, who sets `row`.
  bool ready = false;        // fetched, or failed for good
  absl::Status status;       // when ready
  std::optional<RowId> row;  // that it was asked for; absent while it is early

 private:
  friend class Fetcher;
  Arena* arena_ = nullptr;
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  Buffer reserve_;
  std::shared_ptr<RequestProgress> progress_;
};

/// Fetches samples in the order in which they are asked for, together with neighbours that the plan will want soon,
/// within a fixed arena. Not thread-safe: the owner calls it with `mutex` held; results arrive under that lock too,
/// through `fetched`, which gets the pieces that became ready.
class Fetcher {
 public:
  struct Options {
    uint64_t memory_bytes = 0;      // of all fetched bytes, but for the reserve: one span of the largest sample
    std::vector<uint64_t> extents;  // of each part of the source
    uint64_t world = 1;
    uint64_t rank = 0;
    int max_requests = 256;  // under way at once; more wait in the plan, not in the client's queue
    uint64_t largest_extent() const;
  };

  /// What decides whether a neighbour is worth taking along: the plan of the epoch and the positions that are still
  /// wanted.
  struct Horizon {
    const Plan* plan = nullptr;
    uint64_t epoch = 0;
    uint64_t position = 0;  // of the sample asked for; only later ones are taken along
    uint64_t end = 0;       // one past the last position that this epoch delivers
  };

  /// Sizes that follow from the options.
  struct Sizes {
    uint64_t landing = 0;  // bytes for runs under way; the rest of memory_bytes holds pieces
    uint64_t pieces = 0;
    uint64_t max_run = 0;  // bytes
    uint64_t lead = 0;     // samples that should be ahead of the consumer whatever is kept for later
    uint64_t reach = 0;    // positions ahead within which a neighbour is taken along
    Sizes(const Options& options, double mean_bytes);
  };

  /// Whether the draw at `position` is fetched along with the one of the horizon, where they are neighbours.
  static bool TakesAlong(uint64_t position, const Horizon& horizon, const Options& options, const Sizes& sizes);

  using Pieces = std::vector<std::shared_ptr<Piece>>;

  /// `fetched` is called with `mutex` held, on a thread of the store.
  Fetcher(const Source& source, const Options& options, std::mutex* mutex, std::function<void(const Pieces&)> fetched);
  /// Call Stop() and wait for idle() first.
  ~Fetcher();

  /// Starts fetching the item of `draw`, or finds it fetched already for this draw. Null when memory or requests are
  /// used up: ask again after a piece died or a request ended. `rows_ahead` pieces were returned before and live: with
  /// none left, nothing can free memory any more and the reserve may be used; with few left, the sample is fetched
  /// without neighbours rather than late.
  absl::StatusOr<std::shared_ptr<Piece>> Fetch(const Draw& draw, const Horizon& horizon, uint64_t rows_ahead);

  /// Cancels what is under way; the callbacks still come.
  void Stop();
  bool idle() const { return requests_ == 0; }
  /// True when the last Fetch was refused for the number of requests, not for memory.
  bool at_request_limit() const { return requests_ >= options_.max_requests; }

 private:
  struct Request;
  struct EarlyKey {
    uint64_t epoch;
    uint64_t item;
    uint64_t turn;
    friend bool operator==(const EarlyKey&, const EarlyKey&) = default;
  };
  struct EarlyHash {
    size_t operator()(const EarlyKey& key) const { return HashKey(key.epoch, {key.item, key.turn}); }
  };

  absl::StatusOr<FetchRun> Neighbours(const Draw& draw, const Horizon& horizon) const;
  std::shared_ptr<Piece> NewPiece(uint64_t size);
  std::unique_ptr<Request> Allocate(const FetchRun& run);
  std::unique_ptr<Request> AllocateReserve(const FetchRun& run);  // of one part
  absl::Status Send(std::unique_ptr<Request> request);
  void Finish(std::unique_ptr<Request> request, absl::Status status);
  void DealOut(Request& request);
  void SplitDamaged(const Request& request);
  void SendSingles();
  void Settle(const Request& request, const absl::Status& status);

  const Source& source_;
  const Options options_;
  std::mutex* const mutex_;
  const std::function<void(const Pieces&)> fetched_;
  const Sizes sizes_;
  std::stop_source stop_;
  Arena arena_;                      // of pieces
  Arena landing_;                    // of runs: apart, since its long pieces would find no room between the others
  std::optional<FetchRun> refused_;  // the run of the last Fetch that found no memory
  std::unordered_map<EarlyKey, std::shared_ptr<Piece>, EarlyHash> early_;
  std::weak_ptr<Piece> reserve_in_use_;
  std::deque<std::unique_ptr<Request>> singles_;  // parts of damaged runs, still to be fetched by themselves
  int requests_ = 0;
};

}  // namespace millrace
