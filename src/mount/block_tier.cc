#include "mount/block_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace millrace {

namespace {

// New memory for pieces leaves one part in so many of the budget free. The part depends on their Need.
constexpr uint64_t kLeftByAhead = 4;
constexpr uint64_t kLeftByNow = 16;
// If used-up pieces take more than this share of the kept bytes, or kMaxUsedUp, new pieces get their memory.
constexpr uint64_t kShareUsedUp = 4;
constexpr uint64_t kMaxUsedUp = uint64_t{16} << 20;
// Among these is looked for one whose memory fits.
constexpr int kMaxUsedUpSought = 64;
// Longer pieces get memory for up to an eighth more, so that it fits many others.
constexpr uint64_t kMaxExact = 4096;
// Each of so many blocks of a piece has a bit that shows whether it was used.
constexpr uint64_t kMaxToldApart = 63;

uint64_t RoomBytes(uint64_t length) {
  if (length <= kMaxExact) return length;
  const uint64_t step = std::bit_floor(length) / 8;
  return (length + step - 1) / step * step;
}

}  // namespace

/// The mutex of the tier guards all members that are not const.
struct BlockTier::Object {
  const std::string id;  // in objects_
  const std::string key;
  const std::string etag;
  const std::string uri;
  const uint64_t size;
  size_t versions = 0;                                             // that name it
  absl::flat_hash_map<uint64_t, std::shared_ptr<Piece>> pieces{};  // by each of their blocks
  std::weak_ptr<Reservation> room{};
};

struct BlockTier::Piece {
  std::string uri;
  ByteRange range;
  TimePoint begun_at;
  bool asked_ahead = false;
  std::stop_source stop;

  // The mutex of the tier guards these members.
  Object* object = nullptr;  // as long as the tier has the piece
  uint64_t first = 0;
  uint64_t blocks = 0;
  uint64_t used = 0;  // a bit for each of its blocks; those beyond share the last one
  int holds = 0;
  std::list<std::shared_ptr<Piece>>::iterator place;
  bool kept = true;  // the tier has it
  bool used_up = false;

  std::mutex mutex;
  std::condition_variable changed;
  Room room;
  std::optional<absl::Status> ended;
  TimePoint ended_at;

  bool Ended(bool well) {
    std::lock_guard lock(mutex);
    return ended.has_value() && ended->ok() == well;
  }
};

BlockTier::BlockTier(ObjectStore& store, MemoryBudget& memory, uint64_t keep_bytes, Clock clock)
    : store_(store),
      memory_(memory),
      keep_bytes_(keep_bytes),
      most_used_up_(std::min(keep_bytes / kShareUsedUp, kMaxUsedUp)),
      now_(std::move(clock)) {}

BlockTier::~BlockTier() {
  for (const std::shared_ptr<Piece>& piece : lru_) piece->stop.request_stop();
}

// ---- Versions of objects

BlockTier::Object* BlockTier::Open(const Node& node) {
  std::string id = fmt::format("{}\n{}\n{}", node.size,
                               node.etag.empty() ? fmt::format("{}", node.modified_ms) : node.etag, node.key);
  std::lock_guard lock(mutex_);
  std::unique_ptr<Object>& object = objects_[id];
  if (object == nullptr) {
    object = std::make_unique<Object>(Object{
        .id = std::move(id), .key = node.key, .etag = node.etag, .uri = store_.Uri(node.key), .size = node.size});
  }
  ++object->versions;
  return object.get();
}

void BlockTier::Close(Object* object) {
  std::lock_guard lock(mutex_);
  --object->versions;
  DropIfUnused(object);
}

void BlockTier::DropIfUnused(Object* object) {
  if (object->versions > 0 || !object->pieces.empty()) return;
  objects_.erase(objects_.find(object->id));
}

BlockTier::Version::Version(BlockTier& tier, const Node& node) : tier_(&tier), object_(tier.Open(node)) {}

BlockTier::Version::~Version() {
  tier_->Close(object_);
}

// Returns null if it is not there, or has failed. Its holders see the error; others ask again.
std::shared_ptr<BlockTier::Piece> BlockTier::Find(Object& object, uint64_t number) {
  const auto found = object.pieces.find(number);
  if (found == object.pieces.end()) return nullptr;
  std::shared_ptr<Piece> piece = found->second;
  if (!piece->Ended(/*well=*/false)) return piece;
  Erase(piece);
  return nullptr;
}

std::shared_ptr<BlockTier::Hold> BlockTier::Use(const std::shared_ptr<Piece>& piece) {
  if (piece->holds++ == 0) {
    unheld_bytes_ -= piece->range.length;
    if (piece->used_up) used_up_bytes_ -= piece->range.length;
  }
  piece->used_up = false;
  lru_.splice(lru_.end(), lru_, piece->place);
  return std::make_shared<Hold>(*this, piece);
}

std::shared_ptr<BlockTier::Hold> BlockTier::Version::Find(uint64_t number) const {
  std::lock_guard lock(tier_->mutex_);
  const std::shared_ptr<Piece> piece = tier_->Find(*object_, number);
  return piece == nullptr ? nullptr : tier_->Use(piece);
}

bool BlockTier::Version::Has(uint64_t number) const {
  std::lock_guard lock(tier_->mutex_);
  const auto found = object_->pieces.find(number);
  return found != object_->pieces.end() && !found->second->Ended(/*well=*/false);
}

std::shared_ptr<Reservation> BlockTier::Version::TakeRoom(MemoryBudget& budget) const {
  std::lock_guard lock(tier_->mutex_);
  if (std::shared_ptr<Reservation> room = object_->room.lock()) return room;
  Reservation reservation = budget.TryReserve(object_->size);
  if (!reservation) return nullptr;
  auto room = std::make_shared<Reservation>(std::move(reservation));
  object_->room = room;
  return room;
}

std::shared_ptr<BlockTier::Hold> BlockTier::Version::Fetch(uint64_t number, uint64_t most_blocks, Need need) const {
  std::unique_lock lock(tier_->mutex_);
  if (const std::shared_ptr<Piece> piece = tier_->Find(*object_, number)) return tier_->Use(piece);
  uint64_t blocks = 1;
  while (blocks < most_blocks && (number + blocks) * kBlock < object_->size &&
         tier_->Find(*object_, number + blocks) == nullptr) {
    ++blocks;
  }
  std::shared_ptr<Piece> piece;
  for (; piece == nullptr && blocks > 0; blocks /= 2) piece = tier_->Make(*object_, number, blocks, need);
  if (piece == nullptr) return nullptr;
  auto hold = std::make_shared<Hold>(*tier_, piece);
  lock.unlock();

  GetOptions get;
  get.range = piece->range;
  get.if_match = object_->etag;
  get.stop = piece->stop.get_token();
  tier_->store_.Get(object_->key, piece->room.bytes.span().first(piece->range.length), std::move(get),
                    [piece, now = tier_->now_](const absl::StatusOr<GetResult>& result) {
                      std::lock_guard piece_lock(piece->mutex);
                      piece->ended = result.status();
                      piece->ended_at = now();
                      piece->changed.notify_all();
                    });
  return hold;
}

std::shared_ptr<BlockTier::Hold> BlockTier::Fetch(const Node& node, uint64_t number, uint64_t most_blocks, Need need) {
  return Version(*this, node).Fetch(number, most_blocks, need);
}

bool BlockTier::Has(const Node& node, uint64_t number) {
  return Version(*this, node).Has(number);
}

// ---- Pieces

// Held once. Null if there is no room.
std::shared_ptr<BlockTier::Piece> BlockTier::Make(Object& object, uint64_t number, uint64_t blocks, Need need) {
  const uint64_t offset = number * kBlock;
  const uint64_t length = std::min(blocks * kBlock, object.size - offset);
  std::optional<Room> room = TakeRoom(length, need);
  if (!room) return nullptr;
  auto piece = std::make_shared<Piece>();
  piece->uri = object.uri;
  piece->range = {offset, length};
  piece->begun_at = now_();
  piece->asked_ahead = need == Need::kAhead;
  piece->room = *std::move(room);
  piece->holds = 1;
  piece->object = &object;
  piece->first = number;
  piece->blocks = blocks;
  for (uint64_t i = 0; i < blocks; ++i) object.pieces[number + i] = piece;
  piece->place = lru_.insert(lru_.end(), piece);
  bytes_ += length;
  return piece;
}

std::optional<BlockTier::Room> BlockTier::TakeRoom(uint64_t length, Need need) {
  const uint64_t room_bytes = RoomBytes(length);
  std::optional<Room> room;
  if (used_up_bytes_ > most_used_up_) {
    room = HandOn(room_bytes, /*only_used_up=*/true);
    if (!room) room = Evict(used_up_bytes_ - most_used_up_, room_bytes);
  }
  if (!room && unheld_bytes_ + length > keep_bytes_) {
    room = Evict(unheld_bytes_ + length - keep_bytes_, room_bytes);
  } else if (!room && bytes_ + length > keep_bytes_) {
    room = HandOn(room_bytes, /*only_used_up=*/false);
  }
  const auto fits = [&] {
    const uint64_t left = memory_.limit() / (need == Need::kAhead ? kLeftByAhead : kLeftByNow);
    return memory_.used() + room_bytes + left <= memory_.limit();
  };
  if (!room && !fits()) room = Evict(room_bytes, room_bytes);
  if (room) return room;
  if (!fits()) return std::nullopt;
  room.emplace();
  room->memory = memory_.TryReserve(room_bytes);
  if (!room->memory) return std::nullopt;
  room->bytes = Buffer(room_bytes);
  return room;
}

uint64_t BlockTier::GiveBack(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const uint64_t before = bytes_;
  Evict(bytes, 0);
  return before - bytes_;
}

uint64_t BlockTier::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

BlockTier::Hold::~Hold() {
  if (piece_ != nullptr) tier_->Release(*piece_);
}

ByteRange BlockTier::Hold::range() const {
  return piece_->range;
}

std::optional<std::chrono::nanoseconds> BlockTier::Hold::took() const {
  std::lock_guard lock(piece_->mutex);
  if (!piece_->ended) return std::nullopt;
  return piece_->ended_at - piece_->begun_at;
}

BlockTier::TimePoint BlockTier::Hold::asked_at() const {
  return piece_->begun_at;
}

bool BlockTier::Hold::asked_ahead() const {
  return piece_->asked_ahead;
}

bool BlockTier::Hold::Use(uint64_t number) const {
  std::lock_guard lock(tier_->mutex_);
  const uint64_t bit = uint64_t{1} << std::min(number - piece_->first, kMaxToldApart);
  const bool is_first = (piece_->used & bit) == 0;
  piece_->used |= bit;
  return is_first;
}

bool BlockTier::Hold::failed() const {
  return piece_->Ended(/*well=*/false);
}

void BlockTier::Hold::UseUp() const {
  std::lock_guard lock(tier_->mutex_);
  piece_->used_up = true;
}

absl::StatusOr<ByteSpan> BlockTier::Hold::Wait(const Patience& patience) const {
  std::unique_lock lock(piece_->mutex);
  RETURN_IF_ERROR(patience.Wait(lock, piece_->changed, piece_->uri, [this] { return piece_->ended.has_value(); }));
  RETURN_IF_ERROR(*piece_->ended);
  return ByteSpan(piece_->room.bytes.span()).first(piece_->range.length);
}

void BlockTier::Release(Piece& piece) {
  std::lock_guard lock(mutex_);
  if (--piece.holds > 0 || !piece.kept) return;
  unheld_bytes_ += piece.range.length;
  if (piece.used_up) used_up_bytes_ += piece.range.length;
  if (!piece.Ended(/*well=*/true)) {
    if (!piece.Ended(/*well=*/false)) piece.stop.request_stop();
    return Erase(*piece.place);
  }
  if (piece.used_up) lru_.splice(lru_.begin(), lru_, piece.place);
  if (unheld_bytes_ > keep_bytes_) Evict(unheld_bytes_ - keep_bytes_, 0);
}

// The tier lets it go; those who hold it have it still.
void BlockTier::Erase(const std::shared_ptr<Piece>& piece) {
  const std::shared_ptr<Piece> last = piece;  // `piece` may be the one in the list
  last->kept = false;
  bytes_ -= last->range.length;
  if (last->holds == 0) {
    unheld_bytes_ -= last->range.length;
    if (last->used_up) used_up_bytes_ -= last->range.length;
  }
  for (uint64_t i = 0; i < last->blocks; ++i) last->object->pieces.erase(last->first + i);
  lru_.erase(last->place);
  DropIfUnused(std::exchange(last->object, nullptr));
}

// Returns the memory of one piece that nobody holds, which goes for it: programs that read ahead may together hold more
// than is kept. With `only_used_up`, only a piece that was used up goes: those are the first.
std::optional<BlockTier::Room> BlockTier::HandOn(uint64_t room_bytes, bool only_used_up) {
  int sought = 0;
  for (const std::shared_ptr<Piece>& at : lru_) {
    if (only_used_up && (at->holds > 0 || !at->used_up || ++sought > kMaxUsedUpSought)) break;
    // Its request has ended, so that nobody writes there.
    if (at->holds > 0 || at->room.bytes.size() != room_bytes || !at->Ended(/*well=*/true)) continue;
    const std::shared_ptr<Piece> piece = at;
    Erase(piece);
    return std::move(piece->room);
  }
  return std::nullopt;
}

// Lets go of so much that nobody holds. If one of these pieces has the memory that is wanted, that is for the next.
std::optional<BlockTier::Room> BlockTier::Evict(uint64_t bytes, uint64_t room_bytes) {
  uint64_t made = 0;
  std::optional<Room> room;
  for (auto at = lru_.begin(); at != lru_.end() && made < bytes;) {
    const std::shared_ptr<Piece> piece = *at++;
    if (piece->holds > 0) continue;
    made += piece->range.length;
    Erase(piece);
    if (!room && piece->room.bytes.size() == room_bytes && piece->Ended(/*well=*/true)) room = std::move(piece->room);
  }
  return room;
}

}  // namespace millrace
