#include "pipeline/fetcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace millrace {

namespace {

// Memory beside the arena that an early piece costs (map node, control block, Piece); charged so that millions of tiny
// samples stay within the budget too.
constexpr uint64_t kPieceOverhead = 256;

// A request longer than this gains nothing over two.
constexpr uint64_t kMaxRunBytes = uint64_t{8} << 20;

// What should be ahead of the consumer even when neighbours that are wanted later fill the memory: more than a fast
// network delivers during the first byte's latency.
constexpr uint64_t kLeadBytes = uint64_t{32} << 20;
constexpr uint64_t kMaxLandingBytes = uint64_t{64} << 20;

// The part of the run that has `own`, for it alone: what others share would be kept for them.
FetchRun AloneOf(const FetchRun& run, const FetchRun::Unit& own) {
  const auto has_own = [&own](const FetchRun::Part& part) {
    return part == own || std::find(part.others.begin(), part.others.end(), own) != part.others.end();
  };
  const auto found = std::find_if(run.parts.begin(), run.parts.end(), has_own);
  return {run.part, run.object, {FetchRun::Part{own, found->span, found->crc32c}}};
}

}  // namespace

uint64_t Fetcher::Options::largest_extent() const {
  return *std::max_element(extents.begin(), extents.end());
}

Fetcher::Sizes::Sizes(const Options& options, const Source& source) {
  const double mean = std::max(1.0, source.mean_span_bytes());
  const double mean_item = std::max(1.0, source.mean_item_bytes());
  landing = options.largest_extent() > 1 ? std::min(kMaxLandingBytes, options.memory_bytes / 3) : 0;
  pieces = options.memory_bytes - landing;
  max_run = std::min(kMaxRunBytes, landing / 4);
  const uint64_t lead_bytes = std::min(kLeadBytes, pieces / 2);
  lead = static_cast<uint64_t>(static_cast<double>(lead_bytes) / mean);
  // Neighbours that are wanted within `reach` may fill what the lead leaves, with a tenth for uneven sizes.
  const auto extent_bytes = static_cast<uint64_t>(mean_item * static_cast<double>(options.largest_extent()));
  const uint64_t reach_bytes = std::max((pieces - lead_bytes) / 10 * 9, std::min(pieces / 4, extent_bytes));
  reach = static_cast<uint64_t>(static_cast<double>(reach_bytes) / mean_item) * options.turns_per_item;
}

// One GET. Runs of several samples land in one buffer and are dealt out to pieces, which are freed one by one: samples
// that are neighbours in the object are far apart in a shuffled order.
struct Fetcher::Request {
  FetchRun run;
  Pieces pieces;                   // as run.parts
  std::shared_ptr<Piece> landing;  // null for a single sample
  std::shared_ptr<RequestProgress> progress = std::make_shared<RequestProgress>(RequestPhase::kQueued);
};

Fetcher::Fetcher(const Source& source, const Options& options, std::mutex* mutex,
                 std::function<void(const Pieces&)> fetched)
    : source_(source),
      options_(options),
      mutex_(mutex),
      fetched_(std::move(fetched)),
      sizes_(options, source),
      groups_(options.group_bytes),
      arena_(sizes_.pieces, Arena::UnitFor(source.mean_span_bytes())),
      landing_(sizes_.landing, 4096) {}

Fetcher::~Fetcher() = default;

void Fetcher::Stop() {
  stop_.request_stop();
}

uint64_t Fetcher::Horizon::max_items() const {
  constexpr uint64_t kFirstStepItems = 131072;  // of all its runs: a tenth of a second
  if (!first_step) return kMaxRunItems;
  return std::clamp<uint64_t>(kFirstStepItems / std::max<uint64_t>(rows, 1), 1, kMaxRunItems);
}

bool Fetcher::TakesAlong(const Wanted& other, const Wanted& asked, const Horizon& horizon, const Sizes& sizes) {
  if (horizon.alone) return false;
  if (other.draw == asked.draw) return other.piece > asked.piece;  // of one row: asked for one after the other
  const std::optional<uint64_t> turn = horizon.order->TurnOf(other.draw, horizon.consumed);
  return turn && *turn > horizon.turn && *turn < horizon.turn + sizes.reach;
}

absl::StatusOr<FetchRun> Fetcher::Neighbours(const Source& source, RowGroups& groups, const Options& options,
                                             const Sizes& sizes, const Wanted& asked, const Horizon& horizon,
                                             absl::FunctionRef<bool(const Wanted&)> early) {
  const auto [number, rank] = source.Find(asked.draw.item);
  const Subset& part = source.parts()[number];
  const uint64_t first = source.FirstOf(number);
  const auto wanted = [&](const FetchRun::Unit& unit) {
    const Wanted other{{first + unit.rank, asked.draw.turn}, unit.piece};
    return TakesAlong(other, asked, horizon, sizes) && !early(other);
  };
  absl::StatusOr<FetchRun> run;
  if (source.tokens() == nullptr) {
    run = RunAround(part.index(), part.selection.get(), options.extents[number], rank,
                    {.bytes = sizes.max_run, .gap = options.gaps[number], .items = horizon.max_items()},
                    [&](uint64_t other) { return wanted({other}); });
  } else {
    const TokenRows& rows = *source.rows()[number];
    ASSIGN_OR_RETURN(const std::shared_ptr<const RowGroup> group, groups.Get(rows, number, rank));
    run = RunAroundPiece(rows, *group, options.extents[number], {rank, asked.piece}, sizes.max_run, wanted);
  }
  if (run.ok()) run->part = number;
  return run;
}

absl::StatusOr<std::shared_ptr<const RowGroup>> Fetcher::GroupOf(uint64_t item) {
  const auto [part, row] = source_.Find(item);
  return groups_.Get(*source_.rows()[part], part, row);
}

std::shared_ptr<Piece> Fetcher::NewPiece(uint64_t size) {
  if (size == 0) return std::make_shared<Piece>(Buffer());
  if (arena_.used() + size + early_.size() * kPieceOverhead > arena_.capacity()) return nullptr;
  std::byte* data = arena_.Allocate(size);
  return data == nullptr ? nullptr : std::make_shared<Piece>(&arena_, data, size);
}

std::unique_ptr<Fetcher::Request> Fetcher::Allocate(const FetchRun& run) {
  auto request = std::make_unique<Request>();
  request->run = run;
  if (const uint64_t length = run.range().length; run.parts.size() > 1 && length > 0) {
    std::byte* data = landing_.Allocate(length);
    if (data == nullptr) return nullptr;
    request->landing = std::make_shared<Piece>(&landing_, data, length);
  }
  for (const FetchRun::Part& part : run.parts) {
    std::shared_ptr<Piece> piece = NewPiece(part.span.length);
    if (piece == nullptr) return nullptr;
    piece->progress_ = request->progress;
    request->pieces.push_back(std::move(piece));
  }
  return request;
}

std::unique_ptr<Fetcher::Request> Fetcher::AllocateReserve(const FetchRun& run) {
  auto request = std::make_unique<Request>();
  request->run = run;
  auto piece = std::make_shared<Piece>(Buffer(run.parts.front().span.length));
  piece->progress_ = request->progress;
  reserve_in_use_ = piece;
  request->pieces.push_back(std::move(piece));
  return request;
}

absl::StatusOr<std::shared_ptr<Piece>> Fetcher::Fetch(const Wanted& wanted, const Horizon& horizon,
                                                      uint64_t units_ahead) {
  if (const auto found = early_.find({horizon.epoch, wanted}); found != early_.end()) {
    std::shared_ptr<Piece> piece = std::move(found->second);
    early_.erase(found);
    return piece;
  }
  if (at_request_limit()) return nullptr;
  FetchRun run;
  if (refused_) {
    run = *std::move(refused_);
    refused_.reset();
  } else {
    const auto early = [&](const Wanted& other) { return early_.contains({horizon.epoch, other}); };
    ASSIGN_OR_RETURN(run, Neighbours(source_, groups_, options_, sizes_, wanted, horizon, early));
  }
  const FetchRun::Unit own{wanted.draw.item - source_.FirstOf(run.part), wanted.piece};
  std::unique_ptr<Request> request = Allocate(run);
  if (request == nullptr && units_ahead < sizes_.lead) {
    run = AloneOf(run, own);
    request = Allocate(run);
    if (request == nullptr && units_ahead == 0 && reserve_in_use_.expired()) request = AllocateReserve(run);
  }
  if (request == nullptr) {
    refused_ = std::move(run);
    return nullptr;
  }
  std::shared_ptr<Piece> found;
  for (size_t i = 0; i < request->pieces.size(); ++i) {
    const FetchRun::Part& part = request->run.parts[i];
    const auto deal = [&](const FetchRun::Unit& unit) {
      if (unit == own) {
        found = request->pieces[i];
      } else {
        const Wanted other{{source_.FirstOf(run.part) + unit.rank, wanted.draw.turn}, unit.piece};
        early_.emplace(EarlyKey{horizon.epoch, other}, request->pieces[i]);
      }
    };
    deal(part);
    for (const FetchRun::Unit& other : part.others) deal(other);
  }
  RETURN_IF_ERROR(Send(std::move(request)));
  return found;
}

absl::Status Fetcher::Send(std::unique_ptr<Request> request) {
  const Dataset& dataset = *source_.parts()[request->run.part].dataset;
  IndexedObject object;
  RETURN_IF_ERROR(dataset.index().LookupObject(request->run.object, &object));
  GetOptions get;
  get.range = request->run.range();
  get.if_match = object.etag;
  for (const FetchRun::Part& part : request->run.parts) {
    if (part.crc32c) get.checksums.push_back({part.span, *part.crc32c});
  }
  get.progress = request->progress.get();
  get.stop = stop_.get_token();
  ++requests_;
  const MutableByteSpan into = request->landing ? request->landing->span() : request->pieces.front()->span();
  dataset.store().Get(dataset.StoreKey(object.key), into, std::move(get),
                      [this, request = std::move(request)](absl::StatusOr<GetResult> result) mutable {
                        Finish(std::move(request), result.status());
                      });
  return absl::OkStatus();
}

void Fetcher::Finish(std::unique_ptr<Request> request, absl::Status status) {
  if (status.ok()) DealOut(*request);
  std::lock_guard lock(*mutex_);
  --requests_;
  request->landing = nullptr;
  if (absl::IsDataLoss(status) && request->pieces.size() > 1) {
    SplitDamaged(*request);
  } else {
    Settle(*request, status);
  }
  SendSingles();
  request = nullptr;  // under the lock: after it the owner may be gone, and the arena with it
}

void Fetcher::DealOut(Request& request) {
  if (request.landing == nullptr) return;
  const ByteSpan landed = request.landing->span();
  const uint64_t base = request.run.range().offset;
  for (size_t i = 0; i < request.pieces.size(); ++i) {
    const ByteRange span = request.run.parts[i].span;
    if (span.length == 0) continue;
    std::memcpy(request.pieces[i]->data_, landed.data() + (span.offset - base), span.length);
  }
}

// One damaged sample must not take its neighbours along: each is fetched by itself.
void Fetcher::SplitDamaged(const Request& request) {
  for (size_t i = 0; i < request.pieces.size(); ++i) {
    auto single = std::make_unique<Request>();
    single->run = {request.run.part, request.run.object, {request.run.parts[i]}};
    single->pieces = {request.pieces[i]};
    single->pieces.front()->progress_ = single->progress;
    singles_.push_back(std::move(single));
  }
}

void Fetcher::SendSingles() {
  while (!singles_.empty() && !at_request_limit() && !stop_.stop_requested()) {
    std::unique_ptr<Request> single = std::move(singles_.front());
    singles_.pop_front();
    const Pieces pieces = single->pieces;
    const FetchRun run = single->run;
    const absl::Status sent = Send(std::move(single));
    if (sent.ok()) continue;
    Request unsent;
    unsent.run = run;
    unsent.pieces = pieces;
    Settle(unsent, sent);
  }
}

void Fetcher::Settle(const Request& request, const absl::Status& status) {
  request.progress->store(RequestPhase::kDone, std::memory_order_relaxed);
  const std::string& uri = source_.parts()[request.run.part].dataset->uri();
  for (const std::shared_ptr<Piece>& piece : request.pieces) {
    piece->ready = true;
    piece->status =
        absl::IsFailedPrecondition(status)
            ? Annotate(status, fmt::format("{} has changed since it was indexed; run: millrace index {}", uri, uri))
            : status;
  }
  fetched_(request.pieces);
}

}  // namespace millrace
