#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "base/buffer.h"
#include "base/rng.h"
#include "cache/planned_read.h"
#include "pipeline/arena.h"
#include "pipeline/epoch_order.h"
#include "pipeline/fetch_run.h"
#include "pipeline/fetched_item.h"
#include "pipeline/source.h"
#include "plan/plan.h"

namespace millrace {

/// Fetches items, samples or rows, in the order in which they are asked for, together with neighbours that the plan
/// will want soon, within a fixed arena. For example, Fetch of sample 7 sends one request that also brings samples 8
/// and 9, if their turns come soon. A state machine without I/O: requests go out through `send`, and the owner brings
/// each back by Finish() when it has ended. Not thread-safe.
class Fetcher {
 public:
  struct Options {
    uint64_t memory_bytes = 0;      // of all fetched bytes, except the reserve: one of the largest items
    uint64_t group_bytes = 0;       // beside them, of groups of rows
    uint64_t epoch_bytes = 0;       // of the items of an epoch that come here, with their bookkeeping; 0: not known
    std::vector<uint64_t> extents;  // of each part of the source
    std::vector<uint64_t> gaps;     // of each part of the source: bytes that cost as much as one more request
    uint64_t turns_per_item = 1;    // as EpochOrder's
    int max_requests = 256;         // in flight at once; more wait in the plan, not in the client's queue
    std::stop_token stop;           // requests are cancelled then, and nothing new is sent for those that failed
    uint64_t largest_extent() const;
  };

  /// Represents the wanted item, and the wanted piece of it.
  struct Wanted {
    Draw draw;
    uint32_t piece = 0;  // of a row
    friend bool operator==(const Wanted&, const Wanted&) = default;
  };

  /// Represents the facts that decide whether a neighbour is worth taking along: the order of the epoch, and the turn
  /// from which on it is wanted.
  struct Horizon {
    const EpochOrder* order = nullptr;
    uint64_t epoch = 0;
    uint64_t consumed = 0;  // before the step
    uint64_t turn = 0;      // of the item that is asked for; later ones are taken along
    bool alone = false;     // no neighbours are taken along
    bool first_step = false;
    uint64_t rows = 0;  // of the step
    /// Returns the number of items of an extent that a run may span. It is smaller in the first step, for whose batch
    /// the consumer waits. Its items are in nearly as many extents, and whole ones would be twice the bytes to wait
    /// for. If items are small, only keeping account of all their neighbours would take longer than to fetch the items
    /// of the step.
    uint64_t max_items(uint64_t extent) const;
  };

  /// Represents the sizes that follow from the options.
  struct Sizes {
    uint64_t landing = 0;  // bytes for runs in flight; the rest of memory_bytes holds items
    uint64_t items = 0;
    uint64_t max_run = 0;      // bytes
    uint64_t lead = 0;         // items that should be ahead of the consumer, even if memory is full of items for later
    uint64_t reach = 0;        // turns ahead within which a neighbour is taken along
    bool whole_epoch = false;  // there is room for one: neither more items nor a longer landing would be of use
    Sizes(const Options& options, const Source& source);
  };

  /// Returns the memory that holds an epoch of options.epoch_bytes: more would be of no use.
  static uint64_t NeededBytes(const Options& options, const Source& source);

  /// Returns true if `other` is fetched along with `wanted`, the draw of the horizon, if they are neighbours.
  static bool TakesAlong(const Draw& other, const Draw& wanted, const Horizon& horizon, const Sizes& sizes);

  /// Returns the run of neighbours around `wanted` that are taken along and not `asked` for already.
  static absl::StatusOr<FetchRun> Neighbours(const Source& source, RowGroups& groups, const Options& options,
                                             const Sizes& sizes, const Wanted& wanted, const Horizon& horizon,
                                             absl::FunctionRef<bool(const Wanted&)> asked);

  using Items = std::vector<std::shared_ptr<FetchedItem>>;

  /// Represents the draw for which a request is made, and its turn.
  struct Cause {
    uint64_t epoch = 0;
    Draw draw;
    uint64_t turn = 0;
  };

  /// One GET. If it brings several items, or more bytes than are wanted, it lands in one buffer. From there its bytes
  /// are copied to the items, which are freed one by one: neighbours in the object are far apart in a shuffled order.
  struct Request {
    FetchRun run;
    Items items;         // one for each unit of the run's parts, in their order
    ArenaBlock landing;  // empty if it goes straight to its place
    std::shared_ptr<RequestProgress> progress = std::make_shared<RequestProgress>(RequestPhase::kQueued);
    // These are the arguments for the store.
    ObjectStore* store = nullptr;
    std::string key;
    MutableByteSpan into;
    GetOptions get;
    std::vector<ByteRange> damaged;   // spans that the store reports as damaged
    std::optional<PlannedRead> plan;  // for a cache; left to the owner
    Cause cause;

    /// Copies the bytes to the items. Call it when the request has ended and before Finish(), once, on any thread.
    void DealOut(const absl::Status& status);
  };
  /// Starts a GET; Finish() is called later, not from within. The requests must come back before the Fetcher dies.
  using Send = std::function<void(std::unique_ptr<Request>)>;

  /// Keeps a reference to the source, which outlives it.
  Fetcher(const Source& source, const Options& options, Send send);

  /// Starts fetching the wanted item, or returns it if it was already fetched for this draw. Null if memory or requests
  /// are used up: ask for the same again after an item died or a request ended. `items_ahead` is the number of items
  /// that were returned before and live. If it is 0, nothing can free memory any more, and the reserve may be used. If
  /// it is small and memory is used up by neighbours, the item is fetched without neighbours rather than late.
  absl::StatusOr<std::shared_ptr<FetchedItem>> Fetch(const Draw& wanted, const Horizon& horizon, uint64_t items_ahead);

  /// Starts fetching a sample by itself, whatever else was asked for; null as by Fetch. May use the reserve: the item
  /// that holds it ends without this sample.
  absl::StatusOr<std::shared_ptr<FetchedItem>> FetchAlone(uint64_t item, const Cause& cause);

  /// Ends a request with this status. Returns the items that became ready by it.
  Items Finish(std::unique_ptr<Request> request, const absl::Status& status);

  /// Limits the memory that it takes from now on to so many bytes, and to memory_bytes of its options.
  void SetMemory(uint64_t bytes);
  /// The bytes that the system has given for items and for runs in flight.
  uint64_t touched_items() const { return arena_.touched(); }
  uint64_t touched_landing() const { return landing_.touched(); }
  uint64_t bookkeeping() const { return bookkeeping_; }

  /// Returns true if nothing is in flight.
  bool idle() const { return requests_ == 0; }
  /// Returns true if the last Fetch was refused for the number of requests, not for memory.
  bool at_request_limit() const { return requests_ >= options_.max_requests; }

 private:
  struct EarlyKey {
    uint64_t epoch;
    Draw draw;
    friend bool operator==(const EarlyKey&, const EarlyKey&) = default;
  };
  struct EarlyHash {
    size_t operator()(const EarlyKey& key) const { return HashKey(key.epoch, {key.draw.item, key.draw.turn}); }
  };

  /// Represents a run that found no memory.
  struct Refusal {
    FetchRun run;
    uint64_t missing = 0;  // bytes of memory that it takes
    bool alone = false;    // it takes no neighbours along
  };

  std::shared_ptr<FetchedItem> NewItem(const FetchRun& run, const FetchRun::Unit& unit);
  std::shared_ptr<FetchedItem> NewReserve(const FetchRun& run, const FetchRun::Unit& unit);
  bool Land(Request& request);
  uint64_t used() const { return arena_.used() + bookkeeping_; }
  std::unique_ptr<Request> Allocate(const FetchRun& run, const EarlyKey& own, uint64_t* missing);
  absl::StatusOr<bool> FetchPiece(const Wanted& wanted, const Horizon& horizon, uint64_t items_ahead);
  absl::Status Start(std::unique_ptr<Request> request);
  absl::Status DamageOf(const Request& request, const FetchRun::Part& part, const absl::Status& status) const;

  const Source& source_;
  const Options options_;
  const Send send_;
  Sizes sizes_;
  uint64_t memory_bytes_ = 0;  // of the last SetMemory
  RowGroups groups_;
  Arena arena_;                // of items
  Arena landing_;              // of runs: apart, since its long pieces would find no room between the others
  bool landing_full_ = false;  // for the last run that needed it
  uint64_t bookkeeping_ = 0;
  std::optional<Refusal> refused_;  // of the last Fetch
  // These are items that were taken along, and the one of the last Fetch if it was not complete.
  absl::flat_hash_map<EarlyKey, std::shared_ptr<FetchedItem>, EarlyHash> early_;
  std::weak_ptr<FetchedItem> reserve_in_use_;
  int requests_ = 0;
};

}  // namespace millrace
