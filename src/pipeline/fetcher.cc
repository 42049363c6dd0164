#include "pipeline/fetcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "dataset/changed_object.h"
#include "store/checks.h"

namespace millrace {

namespace {

// A longer request has no advantage over two.
constexpr uint64_t kMaxRunBytes = uint64_t{8} << 20;

// The bytes that should be ahead of the consumer, even if neighbours that are wanted later fill the memory. It is more
// than a fast network delivers during the first byte's latency.
constexpr uint64_t kLeadBytes = uint64_t{32} << 20;
constexpr uint64_t kMaxLeadItems = 32768;
constexpr uint64_t kMaxLandingBytes = uint64_t{64} << 20;

// The minimum, if all of an epoch fits, of the bytes ahead in the next epoch, and of the room for runs in flight.
constexpr uint64_t kLeastAheadBytes = uint64_t{8} << 20;

void ForEachUnit(const FetchRun& run, absl::FunctionRef<void(const FetchRun::Part&, const FetchRun::Unit&)> call) {
  for (const FetchRun::Part& part : run.parts) {
    call(part, part);
    for (const FetchRun::Unit& other : part.others) call(part, other);
  }
}

std::vector<PlacedPiece> PiecesOf(const FetchRun& run, uint64_t rank) {
  std::vector<PlacedPiece> pieces;
  if (run.group == nullptr) return pieces;
  uint32_t start = 0;
  for (const Segment& piece : run.group->Row(rank - run.group->first_row)) {
    pieces.push_back({piece, start});
    start += static_cast<uint32_t>(piece.length);
  }
  return pieces;
}

// Returns the bytes of the whole item that `unit` is, or is a piece of.
uint64_t BytesOf(const FetchRun::Unit& unit, const std::vector<PlacedPiece>& pieces) {
  if (pieces.empty()) return unit.bytes;
  const uint64_t token = unit.bytes / pieces[unit.piece].piece.length;
  return (pieces.back().start + pieces.back().piece.length) * token;
}

// Returns the memory for the bytes of a unit.
MutableByteSpan PlaceOf(FetchedItem& item, const FetchRun::Unit& unit) {
  if (item.pieces().empty()) return item.span();
  const PlacedPiece& placed = item.pieces()[unit.piece];
  return item.span().subspan(placed.start * (unit.bytes / placed.piece.length), unit.bytes);
}

}  // namespace

uint64_t Fetcher::Options::largest_extent() const {
  return *std::max_element(extents.begin(), extents.end());
}

Fetcher::Sizes::Sizes(const Options& options, const Source& source) {
  // The bookkeeping of small samples takes more memory than their bytes.
  const double mean_item = source.mean_item_bytes() + static_cast<double>(FetchedItem::Bookkeeping(0));
  const bool in_runs = options.largest_extent() > 1 || source.tokens() != nullptr;
  const auto extent_bytes = static_cast<uint64_t>(mean_item * static_cast<double>(options.largest_extent()));
  landing = in_runs ? std::min(kMaxLandingBytes, options.memory_bytes / 3) : 0;
  items = options.memory_bytes - landing;
  uint64_t lead_bytes = std::min(kLeadBytes, items / 2);
  if (options.epoch_bytes > 0) {
    // The memory holds an epoch, with a tenth for uneven sizes and for units that the arena wastes, and the begin of
    // the next one.
    const uint64_t ahead = std::clamp(options.epoch_bytes / 4, kLeastAheadBytes, kLeadBytes);
    const uint64_t enough = options.epoch_bytes + options.epoch_bytes / 10 + ahead;
    const uint64_t runs = std::max(kLeastAheadBytes, 4 * std::min(extent_bytes, kMaxRunBytes));
    const uint64_t short_landing = std::min(landing, std::max(runs, options.epoch_bytes / 4));
    whole_epoch = enough <= options.memory_bytes - short_landing;
    if (whole_epoch) {
      landing = short_landing;
      items = enough;
      lead_bytes = ahead;
    }
  }
  max_run = std::min(kMaxRunBytes, landing / 4);
  lead = std::min(kMaxLeadItems, static_cast<uint64_t>(static_cast<double>(lead_bytes) / mean_item));
  // Neighbours that are wanted within `reach` may fill the memory beside the lead, with a tenth for uneven sizes.
  uint64_t reach_bytes = std::max((items - lead_bytes) / 10 * 9, std::min(items / 4, extent_bytes));
  if (whole_epoch) reach_bytes = std::max(reach_bytes, options.epoch_bytes + static_cast<uint64_t>(mean_item));
  reach = static_cast<uint64_t>(static_cast<double>(reach_bytes) / mean_item) * options.turns_per_item;
}

uint64_t Fetcher::NeededBytes(const Options& options, const Source& source) {
  Options ample = options;
  ample.memory_bytes = UINT64_MAX / 4;
  const Sizes sizes(ample, source);
  return sizes.landing + sizes.items;
}

Fetcher::Fetcher(const Source& source, const Options& options, Send send)
    : source_(source),
      options_(options),
      send_(std::move(send)),
      sizes_(options, source),
      memory_bytes_(options.memory_bytes),
      groups_(options.group_bytes),
      arena_(sizes_.items, Arena::UnitFor(source.mean_item_bytes())),
      landing_(sizes_.landing, 4096) {}

void Fetcher::SetMemory(uint64_t bytes) {
  bytes = std::min(bytes, options_.memory_bytes);
  if (bytes == memory_bytes_) return;
  memory_bytes_ = bytes;
  Options now = options_;
  now.memory_bytes = bytes;
  sizes_ = Sizes(now, source_);
  arena_.SetLimit(sizes_.items);
  landing_.SetLimit(sizes_.landing);
  refused_.reset();  // its run may be longer than what lands now
}

uint64_t Fetcher::Horizon::max_items(uint64_t extent) const {
  constexpr uint64_t kFirstStepItems = 131072;  // of all its runs: a tenth of a second
  if (!first_step) return kMaxRunItems;
  const uint64_t half = extent / 2 + extent % 2;
  return std::clamp<uint64_t>(std::min(half, kFirstStepItems / std::max<uint64_t>(rows, 1)), 1, kMaxRunItems);
}

bool Fetcher::TakesAlong(const Draw& other, const Draw& wanted, const Horizon& horizon, const Sizes& sizes) {
  if (other == wanted) return true;  // what is missing of the same row
  if (horizon.alone) return false;
  const std::optional<uint64_t> turn = horizon.order->TurnOf(other, horizon.consumed);
  return turn && *turn > horizon.turn && *turn < horizon.turn + sizes.reach;
}

absl::StatusOr<FetchRun> Fetcher::Neighbours(const Source& source, RowGroups& groups, const Options& options,
                                             const Sizes& sizes, const Wanted& wanted, const Horizon& horizon,
                                             absl::FunctionRef<bool(const Wanted&)> asked) {
  const auto [number, rank] = source.Find(wanted.draw.item);
  const Subset& part = source.parts()[number];
  const auto draw_of = [&, first = source.FirstOf(number)](uint64_t other) {
    return Draw{first + other, wanted.draw.turn};
  };
  const auto takes = [&](uint64_t other) { return TakesAlong(draw_of(other), wanted.draw, horizon, sizes); };
  const RunLimits limits{
      .bytes = sizes.max_run, .gap = options.gaps[number], .items = horizon.max_items(options.extents[number])};
  absl::StatusOr<FetchRun> run;
  if (source.tokens() == nullptr) {
    run = RunAround(part.index(), part.selection.get(), options.extents[number], rank, limits,
                    [&](uint64_t other) { return takes(other) && !asked({draw_of(other)}); });
  } else {
    const TokenRows& rows = *source.rows()[number];
    ASSIGN_OR_RETURN(std::shared_ptr<const RowGroup> group, groups.Get(rows, number, rank));
    run = RunAroundPiece(rows, std::move(group), options.extents[number], {rank, wanted.piece}, limits, takes,
                         [&](const PieceOfRow& of) {
                           return asked({draw_of(of.rank), of.piece});
                         });
  }
  if (run.ok()) run->part = number;
  return run;
}

// Makes an item. Returns null if there is no memory.
std::shared_ptr<FetchedItem> Fetcher::NewItem(const FetchRun& run, const FetchRun::Unit& unit) {
  std::vector<PlacedPiece> pieces = PiecesOf(run, unit.rank);
  const uint64_t size = BytesOf(unit, pieces);
  if (used() + size + FetchedItem::Bookkeeping(pieces.size()) > arena_.limit()) return nullptr;
  ArenaBlock memory;
  if (size > 0 && !(memory = ArenaBlock(&arena_, size))) return nullptr;
  return std::make_shared<FetchedItem>(std::move(memory), std::move(pieces), &bookkeeping_);
}

std::shared_ptr<FetchedItem> Fetcher::NewReserve(const FetchRun& run, const FetchRun::Unit& unit) {
  std::vector<PlacedPiece> pieces = PiecesOf(run, unit.rank);
  Buffer memory(BytesOf(unit, pieces));
  auto item = std::make_shared<FetchedItem>(std::move(memory), std::move(pieces));
  reserve_in_use_ = item;
  return item;
}

// Takes memory for the landing of a run. If there is none, it sets `landing_full_` and returns false. Requests in
// flight free some when they end.
bool Fetcher::Land(Request& request) {
  const FetchRun& run = request.run;
  const uint64_t length = run.range().length;
  landing_full_ = false;
  if (length == 0 || (run.parts.size() == 1 && run.parts.front().whole())) return true;
  request.landing = ArenaBlock(&landing_, length);
  landing_full_ = !request.landing;
  return !landing_full_;
}

// Makes a request with memory for all bytes of the run: `early_` has all its items then. Returns null if there is no
// memory, and `*missing` is the memory that its items take.
std::unique_ptr<Fetcher::Request> Fetcher::Allocate(const FetchRun& run, const EarlyKey& own, uint64_t* missing) {
  auto request = std::make_unique<Request>();
  request->run = run;
  *missing = 0;
  if (!Land(*request)) return nullptr;
  const uint64_t used_before = used();
  const uint64_t first = source_.FirstOf(run.part);
  std::vector<EarlyKey> made;
  bool room = true;
  ForEachUnit(run, [&](const FetchRun::Part& /*part*/, const FetchRun::Unit& unit) {
    const EarlyKey key{own.epoch, {first + unit.rank, own.draw.turn}};
    const auto [at, is_new] = early_.try_emplace(key);
    if (is_new) {
      made.push_back(key);
      if (room) at->second = NewItem(run, unit);
      room = at->second != nullptr;
      if (!room) *missing += unit.bytes + FetchedItem::Bookkeeping(0);
    }
    if (room) request->items.push_back(at->second);
  });
  if (!room) {
    *missing += used() - used_before;
    for (const EarlyKey& key : made) early_.erase(key);
    return nullptr;
  }
  auto item = request->items.begin();
  ForEachUnit(run, [&](const FetchRun::Part& /*part*/, const FetchRun::Unit& unit) {
    (*item++)->Ask(unit.piece, request->progress);
  });
  return request;
}

// Fetches a run around one piece, or a sample; returns false if memory is used up.
absl::StatusOr<bool> Fetcher::FetchPiece(const Wanted& wanted, const Horizon& horizon, uint64_t items_ahead) {
  const EarlyKey own{horizon.epoch, wanted.draw};
  const auto asked = [&](const Wanted& other) {
    const auto found = early_.find({horizon.epoch, other.draw});
    return found != early_.end() && found->second->asked(other.piece);
  };
  const bool hurry = items_ahead < sizes_.lead;
  Refusal last = refused_ ? *std::move(refused_) : Refusal{};
  const bool refused_before = refused_.has_value();
  refused_.reset();
  if (!refused_before) {
    ASSIGN_OR_RETURN(last.run, Neighbours(source_, groups_, options_, sizes_, wanted, horizon, asked));
  } else if (items_ahead > 0 && (last.alone || !hurry) && used() + last.missing > arena_.limit()) {
    refused_ = std::move(last);  // as before: to allocate a long run in vain takes long
    return false;
  }
  std::unique_ptr<Request> request = Allocate(last.run, own, &last.missing);
  // If runs in flight take up all of `landing_`, enough is in flight: to fetch the item alone would only split this
  // run.
  const bool waits_to_land = landing_full_ && requests_ > 0;
  if (request == nullptr && hurry && !waits_to_land) {
    Horizon alone = horizon;
    alone.alone = last.alone = true;
    ASSIGN_OR_RETURN(last.run, Neighbours(source_, groups_, options_, sizes_, wanted, alone, asked));
    request = Allocate(last.run, own, &last.missing);
    if (request == nullptr && items_ahead == 0 && reserve_in_use_.expired() && !early_.contains(own)) {
      early_.emplace(own, NewReserve(last.run, last.run.parts.front()));
      request = Allocate(last.run, own, &last.missing);
    }
  }
  if (request == nullptr) {
    refused_ = std::move(last);
    return false;
  }
  request->cause = {horizon.epoch, wanted.draw, horizon.turn};
  RETURN_IF_ERROR(Start(std::move(request)));
  return true;
}

absl::StatusOr<std::shared_ptr<FetchedItem>> Fetcher::Fetch(const Draw& wanted, const Horizon& horizon,
                                                            uint64_t items_ahead) {
  for (;;) {
    const auto found = early_.find({horizon.epoch, wanted});
    uint32_t piece = 0;
    if (found != early_.end()) {
      if (found->second->unasked_ == 0) {
        std::shared_ptr<FetchedItem> item = std::move(found->second);
        early_.erase(found);
        return item;
      }
      piece = found->second->NextPiece();
    }
    if (at_request_limit()) return nullptr;
    ASSIGN_OR_RETURN(const bool fetched, FetchPiece({wanted, piece}, horizon, items_ahead));
    if (!fetched) return nullptr;
  }
}

absl::StatusOr<std::shared_ptr<FetchedItem>> Fetcher::FetchAlone(uint64_t item, const Cause& cause) {
  if (at_request_limit()) return nullptr;
  const auto [part, rank] = source_.Find(item);
  const Subset& subset = source_.parts()[part];
  auto request = std::make_unique<Request>();
  request->cause = cause;
  ASSIGN_OR_RETURN(request->run, RunAround(subset.index(), subset.selection.get(), 1, rank, {.items = 1},
                                           [](uint64_t /*rank*/) { return false; }));
  request->run.part = part;
  const FetchRun::Part& own = request->run.parts.front();
  std::shared_ptr<FetchedItem> fetched = NewItem(request->run, own);
  if (fetched == nullptr && reserve_in_use_.expired()) fetched = NewReserve(request->run, own);
  if (fetched == nullptr) return nullptr;
  fetched->Ask(0, request->progress);
  request->items = {fetched};
  RETURN_IF_ERROR(Start(std::move(request)));
  return fetched;
}

absl::Status Fetcher::Start(std::unique_ptr<Request> request) {
  const Dataset& dataset = *source_.parts()[request->run.part].dataset;
  IndexedObject object;
  RETURN_IF_ERROR(dataset.index().LookupObject(request->run.object, &object));
  request->store = &dataset.store();
  request->key = dataset.StoreKey(object.key);
  request->into =
      request->landing ? request->landing.span() : PlaceOf(*request->items.front(), request->run.parts.front());
  GetOptions& get = request->get;
  get = RequestFor(request->run, object);
  get.damaged = &request->damaged;
  get.progress = request->progress.get();
  get.stop = options_.stop;
  send_(std::move(request));
  ++requests_;  // now: it has not been sent if that threw, and nothing would end it
  return absl::OkStatus();
}

void Fetcher::Request::DealOut(const absl::Status& status) {
  if (!landing || (!status.ok() && damaged.empty())) return;
  const ByteSpan landed = landing.span();
  const uint64_t base = run.range().offset;
  auto item = items.begin();
  ForEachUnit(run, [&](const FetchRun::Part& part, const FetchRun::Unit& unit) {
    const MutableByteSpan to = PlaceOf(**item++, unit);
    if (!to.empty()) std::memcpy(to.data(), landed.data() + (part.span.offset - base) + unit.skip, to.size());
  });
}

Fetcher::Items Fetcher::Finish(std::unique_ptr<Request> request, const absl::Status& status) {
  --requests_;
  request->landing = ArenaBlock();
  request->progress->store(RequestPhase::kDone, std::memory_order_relaxed);
  const absl::Status shown = SayIfChanged(status, source_.parts()[request->run.part].dataset->uri());
  const bool some_damaged = absl::IsDataLoss(status) && !request->damaged.empty();
  Items ready;
  auto item = request->items.begin();
  ForEachUnit(request->run, [&](const FetchRun::Part& part, const FetchRun::Unit& unit) {
    (*item)->Settle(unit.piece, some_damaged ? DamageOf(*request, part, status) : shown);
    if ((*item)->ready()) ready.push_back(*item);
    ++item;
  });
  return ready;
}

// Returns the damage of a part, so that one damaged sample does not fail its neighbours. `status` describes the first
// damage.
absl::Status Fetcher::DamageOf(const Request& request, const FetchRun::Part& part, const absl::Status& status) const {
  const auto found = std::find(request.damaged.begin(), request.damaged.end(), part.span);
  if (found == request.damaged.end()) return absl::OkStatus();
  if (found == request.damaged.begin()) return status;
  const Dataset& dataset = *source_.parts()[request.run.part].dataset;
  IndexedObject object;
  RETURN_IF_ERROR(dataset.index().LookupObject(request.run.object, &object));
  return DamagedSpan(dataset.store().Uri(dataset.StoreKey(object.key)), part.span);
}

}  // namespace millrace
