#include "transfer/object_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/crypto.h"
#include "base/size.h"
#include "store/checks.h"
#include "store/completion.h"
#include "store/learn.h"
#include "store/whole_check.h"

namespace millrace {

namespace {

constexpr size_t kMaxRequests = 256;
constexpr size_t kMaxComing = 32;         // requests that are known before their turn
constexpr uint64_t kPieceRequests = 128;  // a request more costs less than a hundredth then
constexpr uint64_t kMinPieceBytes = 64 << 10;

bool IsWhole(const ObjectReader::Request& request) {
  return request.checksums.empty() && request.range.length == request.object.size;
}

}  // namespace

// Holds a request, and how far it has come.
struct ObjectReader::Asked {
  explicit Asked(Request asked) : request(std::move(asked)), next(request.range.offset) {}

  Request request;
  std::optional<Completion<absl::StatusOr<ObjectInfo>>> learning;
  std::optional<Pieces> pieces;     // once the object is known
  uint64_t base = 0;                // where the pieces begin
  std::optional<WholeCheck> check;  // of a whole object in several pieces
  bool again = false;
  bool skip = false;
  uint64_t next = 0;                  // offset of what is to be asked for
  size_t next_checksum = 0;           // that no request has got yet
  std::deque<SpanChecksum> spanning;  // several requests, whose bytes have not come
  uint32_t crc = 0;                   // of what has come of the first of them

  // Returns the piece at `next`.
  ByteRange NextRange(uint64_t piece_bytes) const {
    if (request.range.length <= piece_bytes) return request.range;
    const ByteRange piece = pieces->At(pieces->IndexOf(next - base));
    return {next, std::min(base + piece.end(), request.range.end()) - next};
  }
  // Returns the checksums of what one request reads: those of spans that lie within it.
  std::vector<SpanChecksum> ChecksumsOf(ByteRange range) {
    std::vector<SpanChecksum> within;
    const std::vector<SpanChecksum>& all = request.checksums;
    for (; next_checksum < all.size() && all[next_checksum].range.offset < range.end(); ++next_checksum) {
      const SpanChecksum& sum = all[next_checksum];
      if (sum.range.end() <= range.end()) {
        within.push_back(sum);
      } else {
        spanning.push_back(sum);
      }
    }
    return within;
  }
};

// A unit becomes a piece for the consumer.
struct ObjectReader::Unit {
  std::shared_ptr<Asked> asked;
  ByteRange range;
  Space space;
  MutableByteSpan bytes;  // of the space, or memory of the caller
  bool all_asked = false;
  size_t in_flight = 0;
  absl::Status status;

  bool Done() const { return (all_asked || !status.ok()) && in_flight == 0; }
};

ObjectReader::Request ObjectReader::All(ObjectInfo object) {
  const ByteRange range{0, object.size};
  return {.object = std::move(object), .range = range};
}

uint64_t ObjectReader::PieceBytes(const ObjectStore& store, const MemoryBudget& memory) {
  const uint64_t most = std::max(kPieceRequests * store.traits().gap_bytes, kMinPieceBytes);
  return std::clamp(memory.limit() / 16, kMinPieceBytes, most);
}

ObjectReader::ObjectReader(ObjectStore& store, MemoryBudget& memory, Source source, std::stop_token stop,
                           uint64_t max_pieces)
    : store_(store),
      memory_(memory),
      source_(std::move(source)),
      piece_bytes_(PieceBytes(store, memory)),
      window_bytes_(std::min(max_pieces * piece_bytes_, memory.limit() / 2)),
      owners_stop_(std::move(stop)),
      calls_(owners_stop_) {}

ObjectReader::ObjectReader(ObjectStore& store, MemoryBudget& memory, std::shared_ptr<Asked> again, std::stop_token stop)
    : ObjectReader(
          store, memory, []() -> absl::StatusOr<std::optional<Request>> { return std::nullopt; }, std::move(stop)) {
  coming_.push_back(std::move(again));
}

ObjectReader::~ObjectReader() = default;

absl::Status ObjectReader::Fill() {
  while (true) {
    while (!coming_.empty()) {
      const std::shared_ptr<Asked> asked = coming_.front();
      ASSIGN_OR_RETURN(const bool started, StartNext(asked));
      if (!started) break;
      if (asked->skip || (asked->next == asked->request.range.end())) coming_.pop_front();
    }
    if (!exhausted_ && coming_.size() < kMaxComing) {
      RETURN_IF_ERROR(AskSource());
      continue;
    }
    if (!units_.empty() || coming_.empty()) return absl::OkStatus();
    // Then only what is not known of the first keeps it from being started.
    if (!coming_.front()->learning->WaitOrStop(owners_stop_)) return absl::CancelledError("reading was interrupted");
  }
}

absl::Status ObjectReader::AskSource() {
  ASSIGN_OR_RETURN(std::optional<Request> request, source_());
  exhausted_ = !request;
  if (exhausted_) return absl::OkStatus();
  Asked& asked = *coming_.emplace_back(std::make_shared<Asked>(*std::move(request)));
  // Without ETag, no fact about the object need be about the version that is read.
  const ObjectInfo& object = asked.request.object;
  const bool large = asked.request.range.length > piece_bytes_ && asked.request.checksums.empty();
  if (large && !object.etag.empty()) LearnObject(store_, object, asked.learning.emplace().Callback());
  return absl::OkStatus();
}

absl::StatusOr<bool> ObjectReader::IsKnown(Asked& asked) {
  if (asked.learning) {
    if (!asked.learning->WaitFor(std::chrono::milliseconds(0))) return false;
    ASSIGN_OR_RETURN(asked.request.object, asked.learning->Wait());
    asked.learning.reset();
  }
  if (asked.pieces) return true;
  const Request& request = asked.request;
  if (request.checksums.empty()) {
    asked.pieces.emplace(request.object.size, request.object.part_bytes, piece_bytes_);
    if (IsWhole(request) && asked.pieces->count() > 1)
      asked.check.emplace(store_.Uri(request.object.key), request.object, *asked.pieces);
  } else {
    asked.base = request.range.offset;
    asked.pieces.emplace(request.range.length, 0, piece_bytes_);
  }
  return true;
}

// Asks for the next piece, if there is room for it.
absl::StatusOr<bool> ObjectReader::StartNext(const std::shared_ptr<Asked>& asked) {
  if (asked->skip) return true;
  ASSIGN_OR_RETURN(const bool known, IsKnown(*asked));
  if (!known) return false;
  const ByteRange range = asked->NextRange(piece_bytes_);
  // This comes before a unit is made: one for which nothing was requested would stand in the way of SkipRest.
  if (range.length > 0 && calls_.count() == kMaxRequests) return false;
  if (units_.empty() || units_.back()->all_asked) {
    const bool in_one = asked->request.in_one || !asked->request.into.empty();
    ASSIGN_OR_RETURN(std::unique_ptr<Unit> unit, MakeUnit(asked, in_one ? asked->request.range : range));
    if (unit == nullptr) return false;
    bytes_ahead_ += unit->space.buffer.size();
    units_.push_back(std::move(unit));
  }
  Unit& unit = *units_.back();
  asked->next = range.end();
  unit.all_asked = range.end() == unit.range.end();
  if (range.length > 0) Get(unit, range);
  return true;
}

// Returns null when it has to wait for room.
absl::StatusOr<std::unique_ptr<ObjectReader::Unit>> ObjectReader::MakeUnit(const std::shared_ptr<Asked>& asked,
                                                                           ByteRange range) {
  auto unit = std::make_unique<Unit>();
  unit->asked = asked;
  unit->range = range;
  unit->bytes = asked->request.into;
  if (units_.size() == kMaxRequests) return nullptr;
  if (!unit->bytes.empty()) return unit;
  if (!units_.empty() && bytes_ahead_ + range.length > window_bytes_) return nullptr;
  if (!TakeSpace(range.length, unit->space)) {
    if (!units_.empty()) return nullptr;
    return absl::ResourceExhaustedError(fmt::format(
        "{}: reading needs {} of memory; {} of {} are in use: raise the limit", store_.Uri(asked->request.object.key),
        FormatSize(range.length), FormatSize(memory_.used()), FormatSize(memory_.limit())));
  }
  unit->bytes = unit->space.buffer.span();
  return unit;
}

// Takes the spare space, if it has this size: to touch new memory costs a third of the time of receiving its bytes.
bool ObjectReader::TakeSpace(uint64_t bytes, Space& space) {
  if (spare_.buffer.size() == bytes) {
    space = std::exchange(spare_, {});
    return true;
  }
  space.memory = memory_.TryReserve(bytes);
  if (!space.memory && spare_.memory) {
    spare_ = {};
    space.memory = memory_.TryReserve(bytes);
  }
  if (!space.memory) return false;
  space.buffer = Buffer(bytes);
  return true;
}

// Keeps its space for a piece to come. Pieces of an object have one size, but for the last: the larger space is kept.
void ObjectReader::EndCurrent() {
  const uint64_t bytes = current_ == nullptr ? 0 : current_->space.buffer.size();
  if (bytes > spare_.buffer.size() && bytes <= piece_bytes_) spare_ = std::move(current_->space);
  current_.reset();
  if (exhausted_ && coming_.empty()) spare_ = {};
}

void ObjectReader::Get(Unit& unit, ByteRange range) {
  Asked& asked = *unit.asked;
  const ObjectInfo& object = asked.request.object;
  GetOptions options;
  options.range = range;
  options.if_match = object.etag;
  options.checksums = asked.ChecksumsOf(range);
  options.whole = IsWhole(asked.request) && range == asked.request.range;
  const size_t index = asked.pieces->IndexOf(range.offset - asked.base);
  options.part = asked.base == 0 && range == asked.pieces->At(index) && asked.pieces->IsPart(index);
  options.stop = calls_.stop();
  ++unit.in_flight;
  store_.Get(object.key, unit.bytes.subspan(range.offset - unit.range.offset, range.length), std::move(options),
             calls_.Add<absl::StatusOr<GetResult>>([&unit](const absl::StatusOr<GetResult>& result) {
               unit.status.Update(result.status());
               --unit.in_flight;
               return absl::OkStatus();  // an error is that of its unit, and reported with it
             }));
}

// Waits until the first unit is complete. Meanwhile one that takes many requests gets them.
absl::Status ObjectReader::WaitForFront() {
  size_t room = SIZE_MAX;
  do {
    RETURN_IF_ERROR(calls_.WaitForRoom(room));
    RETURN_IF_ERROR(Fill());
    if (units_.empty()) return absl::OkStatus();
    room = units_.back()->all_asked ? calls_.count() : kMaxRequests;
  } while (!units_.front()->Done());
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ObjectReader::Piece>> ObjectReader::Next() {
  if (again_ != nullptr) {
    ASSIGN_OR_RETURN(const std::optional<Piece> piece, again_->Next());
    if (piece) return piece;
    again_.reset();
  }
  do {
    EndCurrent();
    // This is checked also if reads end too soon to be cancelled, as those of files do.
    if (owners_stop_.stop_requested()) return absl::CancelledError("reading was interrupted");
    RETURN_IF_ERROR(WaitForFront());
    if (units_.empty()) return std::nullopt;
    current_ = std::move(units_.front());
    units_.pop_front();
    bytes_ahead_ -= current_->space.buffer.size();
  } while (current_->asked->skip);
  if (owners_stop_.stop_requested()) return absl::CancelledError("reading was interrupted");
  const Unit& unit = *current_;
  Asked& asked = *unit.asked;
  RETURN_IF_ERROR(unit.status);
  RETURN_IF_ERROR(CheckSpans(asked, unit));
  ASSIGN_OR_RETURN(const bool again, MustBeginAgain(asked, unit));
  if (again) return BeginAgain(unit.asked);
  return Piece{.offset = unit.range.offset,
               .bytes = unit.bytes,
               .first = unit.range.offset == asked.request.range.offset,
               .last = unit.range.end() == asked.request.range.end(),
               .checked = asked.check && asked.check->checks()};
}

absl::Status ObjectReader::CheckSpans(Asked& asked, const Unit& unit) const {
  while (!asked.spanning.empty() && asked.spanning.front().range.offset < unit.range.end()) {
    const SpanChecksum& sum = asked.spanning.front();
    const uint64_t begin = std::max(sum.range.offset, unit.range.offset);
    const uint64_t end = std::min(sum.range.end(), unit.range.end());
    asked.crc = Crc32c(unit.bytes.subspan(begin - unit.range.offset, end - begin), asked.crc);
    if (end < sum.range.end()) break;
    if (asked.crc != sum.crc32c) return DamagedSpan(store_.Uri(asked.request.object.key), sum.range);
    asked.crc = 0;
    asked.spanning.pop_front();
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ObjectReader::MustBeginAgain(Asked& asked, const Unit& unit) const {
  if (!asked.check) return false;
  const ByteSpan bytes = unit.bytes;
  for (uint64_t at = unit.range.offset; at < unit.range.end();) {
    const size_t index = asked.pieces->IndexOf(at);
    const ByteRange piece = asked.pieces->At(index);
    asked.check->Add(index, bytes.subspan(at - unit.range.offset, piece.length));
    at = piece.end();
  }
  if (unit.range.end() < asked.request.range.end()) return false;
  if (asked.again) {
    RETURN_IF_ERROR(asked.check->FinishAgain());
    return false;
  }
  if (!asked.check->Disagrees()) return false;
  if (asked.request.begin_again && asked.request.begin_again()) return true;
  RETURN_IF_ERROR(asked.check->Finish());
  return false;
}

absl::StatusOr<std::optional<ObjectReader::Piece>> ObjectReader::BeginAgain(std::shared_ptr<Asked> asked) {
  current_.reset();
  asked->again = true;
  asked->next = asked->request.range.offset;
  again_.reset(new ObjectReader(store_, memory_, std::move(asked), owners_stop_));
  return again_->Next();
}

void ObjectReader::SkipRest() {
  if (again_ != nullptr) return again_->SkipRest();
  current_->asked->skip = true;
}

absl::Status ReadPieces(ObjectStore& store, MemoryBudget& memory, ObjectReader::Request request,
                        const std::stop_token& stop, absl::FunctionRef<absl::Status(const ObjectReader::Piece&)> each,
                        uint64_t max_pieces) {
  std::optional<ObjectReader::Request> only = std::move(request);
  ObjectReader reader(
      store, memory,
      [&only]() -> absl::StatusOr<std::optional<ObjectReader::Request>> { return std::exchange(only, std::nullopt); },
      stop, max_pieces);
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<ObjectReader::Piece> piece, reader.Next());
    if (!piece) return absl::OkStatus();
    RETURN_IF_ERROR(each(*piece));
  }
}

}  // namespace millrace
