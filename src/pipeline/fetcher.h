#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "base/buffer.h"
#include "base/rng.h"
#include "pipeline/arena.h"
#include "pipeline/epoch_order.h"
#include "pipeline/fetch_run.h"
#include "pipeline/source.h"
#include "plan/plan.h"

namespace millrace {

/// What one decode task does: a row of a batch, or a piece of one. Steps are counted over the life of a loader.
struct UnitId {
  uint64_t step = 0;
  uint32_t unit = 0;
};

/// The fetched bytes of one sample's span, or of a part of it. Its memory returns to the arena when it dies.
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
  uint64_t size() const { return size_; }
  RequestPhase phase() const { return progress_->load(std::memory_order_relaxed); }

  // Under the lock of the Fetcher's owner, who adds to `waiting`.
  bool ready = false;           // fetched, or failed for good
  absl::Status status;          // when ready
  std::vector<UnitId> waiting;  // those that it was asked for before it was ready; none while it is early

 private:
  friend class Fetcher;
  Arena* arena_ = nullptr;
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  Buffer reserve_;
  std::shared_ptr<RequestProgress> progress_;
};

/// Fetches samples, or pieces of rows, in the order in which they are asked for, together with neighbours that the plan
/// will want soon, within a fixed arena. Not thread-safe: the owner calls it with `mutex` held; results arrive under
/// that lock too, through `fetched`, which gets the pieces that became ready.
class Fetcher {
 public:
  struct Options {
    uint64_t memory_bytes = 0;      // of all fetched bytes, but for the reserve: one span of the largest sample
    uint64_t group_bytes = 0;       // beside them, of groups of rows
    std::vector<uint64_t> extents;  // of each part of the source
    std::vector<uint64_t> gaps;     // likewise: bytes that cost as much as a request more
    uint64_t turns_per_item = 1;    // as EpochOrder's
    int max_requests = 256;         // under way at once; more wait in the plan, not in the client's queue
    uint64_t largest_extent() const;
  };

  /// What is asked for: an item, and which piece of it.
  struct Wanted {
    Draw draw;
    uint32_t piece = 0;  // of a row
    friend bool operator==(const Wanted&, const Wanted&) = default;
  };

  /// What decides whether a neighbour is worth taking along: the order of the epoch, and from where on it is wanted.
  struct Horizon {
    const EpochOrder* order = nullptr;
    uint64_t epoch = 0;
    uint64_t consumed = 0;  // before the step
    uint64_t turn = 0;      // of the item that is asked for; later ones are taken along
    bool alone = false;     // none is
    bool first_step = false;
    uint64_t rows = 0;  // of the step
    /// Samples that a run may span. Fewer in the first step, whose batch somebody waits for: where samples are small,
    /// just keeping account of all neighbours of its samples would take longer than to fetch what it needs.
    uint64_t max_items() const;
  };

  /// Sizes that follow from the options.
  struct Sizes {
    uint64_t landing = 0;  // bytes for runs under way; the rest of memory_bytes holds pieces
    uint64_t pieces = 0;
    uint64_t max_run = 0;  // bytes
    uint64_t lead = 0;     // spans that should be ahead of the consumer whatever is kept for later
    uint64_t reach = 0;    // turns ahead within which a neighbour is taken along
    Sizes(const Options& options, const Source& source);
  };

  /// Whether `other` is fetched along with the one of the horizon, which is `asked`, where they are neighbours.
  static bool TakesAlong(const Wanted& other, const Wanted& asked, const Horizon& horizon, const Sizes& sizes);

  /// The run of neighbours around `asked` that are taken along and not `early` (fetched already).
  static absl::StatusOr<FetchRun> Neighbours(const Source& source, RowGroups& groups, const Options& options,
                                             const Sizes& sizes, const Wanted& asked, const Horizon& horizon,
                                             absl::FunctionRef<bool(const Wanted&)> early);

  using Pieces = std::vector<std::shared_ptr<Piece>>;

  /// `fetched` is called with `mutex` held, on a thread of the store.
  Fetcher(const Source& source, const Options& options, std::mutex* mutex, std::function<void(const Pieces&)> fetched);
  /// Call Stop() and wait for idle() first.
  ~Fetcher();

  /// Starts fetching what is wanted, or finds it fetched already for this draw. Null when memory or requests are
  /// used up: ask again after a piece died or a request ended. `units_ahead` were returned before and live: with
  /// none left, nothing can free memory any more and the reserve may be used; with few left, the sample is fetched
  /// without neighbours rather than late.
  absl::StatusOr<std::shared_ptr<Piece>> Fetch(const Wanted& wanted, const Horizon& horizon, uint64_t units_ahead);

  /// The group of a row, where items are rows.
  absl::StatusOr<std::shared_ptr<const RowGroup>> GroupOf(uint64_t item);

  /// Cancels what is under way; the callbacks still come.
  void Stop();
  bool idle() const { return requests_ == 0; }
  /// True when the last Fetch was refused for the number of requests, not for memory.
  bool at_request_limit() const { return requests_ >= options_.max_requests; }

 private:
  struct Request;
  struct EarlyKey {
    uint64_t epoch;
    Wanted wanted;
    friend bool operator==(const EarlyKey&, const EarlyKey&) = default;
  };
  struct EarlyHash {
    size_t operator()(const EarlyKey& key) const {
      return HashKey(key.epoch, {key.wanted.draw.item, key.wanted.draw.turn, key.wanted.piece});
    }
  };

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
  RowGroups groups_;
  std::stop_source stop_;
  Arena arena_;                      // of pieces
  Arena landing_;                    // of runs: apart, since its long pieces would find no room between the others
  std::optional<FetchRun> refused_;  // the run of the last Fetch that found no memory
  absl::flat_hash_map<EarlyKey, std::shared_ptr<Piece>, EarlyHash> early_;
  std::weak_ptr<Piece> reserve_in_use_;
  std::deque<std::unique_ptr<Request>> singles_;  // parts of damaged runs, still to be fetched by themselves
  int requests_ = 0;
};

}  // namespace millrace
