#include "mount/block_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace millrace {

namespace {

// Of the budget.
constexpr uint64_t kLeftByAhead = 4;
constexpr uint64_t kLeftByNow = 16;

}  // namespace

struct BlockTier::Piece {
  std::string uri;
  ByteRange range;
  std::stop_source stop;

  // Under the mutex of the tier.
  std::vector<std::string> ids;  // of its blocks
  int holds = 0;
  std::list<std::shared_ptr<Piece>>::iterator turn;
  bool kept = true;  // the tier has it
  bool used_up = false;

  std::mutex mutex;
  std::condition_variable changed;
  Room room;
  std::optional<absl::Status> ended;
  const std::chrono::steady_clock::time_point begun_at = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point ended_at;

  bool Ended(bool well) {
    std::lock_guard lock(mutex);
    return ended.has_value() && ended->ok() == well;
  }
};

BlockTier::BlockTier(ObjectStore& store, MemoryBudget& memory, uint64_t keep_bytes)
    : store_(store), memory_(memory), keep_bytes_(keep_bytes) {}

BlockTier::~BlockTier() {
  for (const std::shared_ptr<Piece>& piece : turns_) piece->stop.request_stop();
}

std::string BlockTier::IdOf(const Node& node, uint64_t number) {
  return fmt::format("{}\n{}\n{}", number, node.etag.empty() ? fmt::format("{}", node.modified_ms) : node.etag,
                     node.key);
}

// Null if it is not there, or has failed: those who hold it are told; others ask again.
std::shared_ptr<BlockTier::Piece> BlockTier::Find(const std::string& id) {
  const auto found = pieces_.find(id);
  if (found == pieces_.end()) return nullptr;
  std::shared_ptr<Piece> piece = found->second;
  if (!piece->Ended(/*well=*/false)) return piece;
  Erase(piece);
  return nullptr;
}

std::shared_ptr<BlockTier::Hold> BlockTier::Fetch(const Node& node, uint64_t number, uint64_t most_blocks, Need need) {
  std::unique_lock lock(mutex_);
  if (const std::shared_ptr<Piece> piece = Find(IdOf(node, number))) {
    if (piece->holds++ == 0) unheld_bytes_ -= piece->range.length;
    piece->used_up = false;
    turns_.splice(turns_.end(), turns_, piece->turn);
    return std::make_shared<Hold>(*this, piece);
  }
  uint64_t blocks = 1;
  while (blocks < most_blocks && (number + blocks) * kBlock < node.size &&
         Find(IdOf(node, number + blocks)) == nullptr) {
    ++blocks;
  }
  std::shared_ptr<Piece> piece;
  for (; piece == nullptr && blocks > 0; blocks /= 2) piece = Make(node, number, blocks, need);
  if (piece == nullptr) return nullptr;
  auto hold = std::make_shared<Hold>(*this, piece);
  lock.unlock();

  GetOptions get;
  get.range = piece->range;
  get.if_match = node.etag;
  get.stop = piece->stop.get_token();
  store_.Get(node.key, piece->room.bytes.span(), std::move(get), [piece](const absl::StatusOr<GetResult>& result) {
    std::lock_guard piece_lock(piece->mutex);
    piece->ended = result.status();
    piece->ended_at = std::chrono::steady_clock::now();
    piece->changed.notify_all();
  });
  return hold;
}

// Held once. Null if there is no room.
std::shared_ptr<BlockTier::Piece> BlockTier::Make(const Node& node, uint64_t number, uint64_t blocks, Need need) {
  const uint64_t offset = number * kBlock;
  const uint64_t length = std::min(blocks * kBlock, node.size - offset);
  std::optional<Room> room = TakeRoom(length, need);
  if (!room) return nullptr;
  auto piece = std::make_shared<Piece>();
  piece->uri = store_.Uri(node.key);
  piece->range = {offset, length};
  piece->room = *std::move(room);
  piece->holds = 1;
  for (uint64_t i = 0; i < blocks; ++i) piece->ids.push_back(IdOf(node, number + i));
  for (const std::string& id : piece->ids) pieces_[id] = piece;
  piece->turn = turns_.insert(turns_.end(), piece);
  bytes_ += length;
  return piece;
}

std::optional<BlockTier::Room> BlockTier::TakeRoom(uint64_t length, Need need) {
  std::optional<Room> room;
  if (unheld_bytes_ + length > keep_bytes_) {
    room = Evict(unheld_bytes_ + length - keep_bytes_, length);
  } else if (bytes_ + length > keep_bytes_) {
    room = HandOn(length);
  }
  const auto fits = [&] {
    const uint64_t left = memory_.limit() / (need == Need::kAhead ? kLeftByAhead : kLeftByNow);
    return memory_.used() + length + left <= memory_.limit();
  };
  if (!room && !fits()) room = Evict(length, length);
  if (room) return room;
  if (!fits()) return std::nullopt;
  room.emplace();
  room->memory = memory_.TryReserve(length);
  if (!room->memory) return std::nullopt;
  room->bytes = Buffer(length);
  return room;
}

bool BlockTier::Has(const Node& node, uint64_t number) const {
  std::lock_guard lock(mutex_);
  const auto found = pieces_.find(IdOf(node, number));
  return found != pieces_.end() && !found->second->Ended(/*well=*/false);
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
  return ByteSpan(piece_->room.bytes.span());
}

void BlockTier::Release(Piece& piece) {
  std::lock_guard lock(mutex_);
  if (--piece.holds > 0 || !piece.kept) return;
  unheld_bytes_ += piece.range.length;
  if (!piece.Ended(/*well=*/true)) {
    if (!piece.Ended(/*well=*/false)) piece.stop.request_stop();
    return Erase(*piece.turn);
  }
  if (piece.used_up) turns_.splice(turns_.begin(), turns_, piece.turn);
  if (unheld_bytes_ > keep_bytes_) Evict(unheld_bytes_ - keep_bytes_, 0);
}

// The tier lets it go; those who hold it have it still.
void BlockTier::Erase(const std::shared_ptr<Piece>& piece) {
  const std::shared_ptr<Piece> last = piece;  // `piece` may be the one in the list
  last->kept = false;
  bytes_ -= last->range.length;
  if (last->holds == 0) unheld_bytes_ -= last->range.length;
  for (const std::string& id : last->ids) pieces_.erase(id);
  turns_.erase(last->turn);
}

// The memory of one piece that nobody holds, which goes for it: to get fresh memory from the kernel takes about as long
// as to fill it, and programs that read ahead may together hold more than is kept.
std::optional<BlockTier::Room> BlockTier::HandOn(uint64_t length) {
  for (const std::shared_ptr<Piece>& turn : turns_) {
    // Its request has ended, so that nobody writes there.
    if (turn->holds > 0 || turn->range.length != length || !turn->Ended(/*well=*/true)) continue;
    const std::shared_ptr<Piece> piece = turn;
    Erase(piece);
    return std::move(piece->room);
  }
  return std::nullopt;
}

// Lets go of so much that nobody holds. If one of these pieces has the memory that is wanted, that is for the next.
std::optional<BlockTier::Room> BlockTier::Evict(uint64_t bytes, uint64_t wanted) {
  uint64_t made = 0;
  std::optional<Room> room;
  for (auto turn = turns_.begin(); turn != turns_.end() && made < bytes;) {
    const std::shared_ptr<Piece> piece = *turn++;
    if (piece->holds > 0) continue;
    made += piece->range.length;
    Erase(piece);
    if (!room && piece->range.length == wanted && piece->Ended(/*well=*/true)) room = std::move(piece->room);
  }
  return room;
}

}  // namespace millrace
