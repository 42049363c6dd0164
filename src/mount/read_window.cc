#include "mount/read_window.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <iterator>
#include <stop_token>
#include <utility>

namespace millrace {

namespace {

constexpr uint64_t kBlock = BlockTier::kBlock;
static_assert(kBlock == ReadPattern::kBlockBytes);
constexpr uint64_t kMaxAhead = uint64_t{64} << 20;
constexpr uint64_t kShareAhead = 8;  // of the budget, for one file
// So many pieces around reads at random may be in flight at a time.
constexpr size_t kMaxSurplusInFlight = 16;
// This share of the kept bytes may be in flight.
constexpr uint64_t kShareInFlight = 2;
// So many blocks are searched for one that is missing.
constexpr uint64_t kMaxBlocksSought = 64;
static_assert(kBlock == ReadSurplus::kBlockBytes);

uint64_t MaxAhead(const MemoryBudget& memory) {
  return std::min(kMaxAhead, memory.limit() / kShareAhead);
}

// Returns one past the number of the last block that begins before the offset.
uint64_t BlocksUntil(uint64_t offset) {
  return (offset + kBlock - 1) / kBlock;
}

}  // namespace

size_t FileBytes::size() const {
  size_t size = 0;
  for (const ByteSpan part : parts) size += part.size();
  return size;
}

ReadWindow::ReadWindow(const Shared& shared, Node node, Kernel kernel)
    : store_(shared.store),
      memory_(shared.memory),
      around_tier_(shared.around),
      around_room_(shared.room),
      node_(std::move(node)),
      uri_(store_.Uri(node_.key)),
      blocks_in_all_(BlocksUntil(node_.size)),
      kernel_(kernel),
      ahead_(shared.ahead, node_),
      around_(shared.around, node_),
      pattern_(node_.size, MaxAhead(memory_)),
      surplus_(node_.size, shared.around.keep_bytes()) {}

absl::StatusOr<FileBytes> ReadWindow::Read(uint64_t offset, size_t size, const Patience& patience) {
  if (offset >= node_.size || size == 0) return FileBytes();
  const uint64_t end = offset + std::min<uint64_t>(size, node_.size - offset);
  Found found;
  bool in_blocks = false;
  {
    std::lock_guard lock(mutex_);
    const ReadAdvice advice = pattern_.OnRead(offset, end);
    for (const ByteRange behind : advice.behind) Drop(behind);
    DropFailed(offset, end);
    NoteArrivals();
    in_blocks = advice.in_blocks;
    if (in_blocks) FetchAhead(offset, end, advice);
    found = PiecesOf(offset, end);
    UseUp(advice.finished);
  }
  const auto ask = [&] {
    return in_blocks ? ReadAlone(offset, end - offset, patience) : ReadAtRandom(offset, end - offset, patience);
  };
  if (found.pieces.empty()) return ask();
  FileBytes bytes;
  for (HeldPiece& piece : found.pieces) {
    // If it fails, the next read asks again; but what was asked for ahead of this one is no error of it.
    const absl::StatusOr<ByteSpan> all = piece->Wait(patience);
    if (!all.ok() && piece->asked_ahead() && piece->failed()) return ask();
    RETURN_IF_ERROR(all.status());
    const ByteRange there = piece->range();
    const uint64_t from = std::max(offset, there.offset);
    bytes.parts.push_back(all->subspan(from - there.offset, std::min(end, there.end()) - from));
    bytes.owners.push_back(std::move(piece));
  }
  return bytes;
}

void ReadWindow::Drop(ByteRange range) {
  UseUp(range);
  blocks_.erase(blocks_.lower_bound(range.offset / kBlock), blocks_.lower_bound(BlocksUntil(range.end())));
}

// A program has read this, so the kernel has it, if it keeps what is read. Blocks that are kept for later reads stay.
void ReadWindow::UseUp(ByteRange range) {
  if (kernel_ != Kernel::kKeeps) return;
  const auto last = blocks_.lower_bound(BlocksUntil(range.end()));
  for (auto block = blocks_.lower_bound(range.offset / kBlock); block != last; ++block) {
    // Its last block, as pieces are read forward.
    const bool is_last = BlocksUntil(block->second->range().end()) == block->first + 1;
    if (is_last && !around_.Has(block->first)) block->second->UseUp();
  }
}

// A block that was read ahead in vain, maybe long ago, is no error of a program that reads now.
void ReadWindow::DropFailed(uint64_t offset, uint64_t end) {
  const auto last = blocks_.lower_bound(BlocksUntil(end));
  for (auto block = blocks_.lower_bound(offset / kBlock); block != last;) {
    block = block->second->failed() ? blocks_.erase(block) : std::next(block);
  }
}

void ReadWindow::FetchAhead(uint64_t offset, uint64_t end, const ReadAdvice& advice) {
  if (kernel_ == Kernel::kKeepsNothing && forward_ == &ahead_ && TakeRoom()) forward_ = &around_;
  const uint64_t piece = advice.piece_bytes / kBlock;
  const uint64_t needed = BlocksUntil(end);
  const uint64_t until = BlocksUntil(std::max(end, advice.until));
  uint64_t number = offset / kBlock;
  for (auto block = blocks_.lower_bound(number); number < until; block = blocks_.lower_bound(number)) {
    for (; block != blocks_.end() && block->first == number; ++block) ++number;
    if (number >= until) return;
    HeldPiece held = around_.Find(number);
    // Look-ahead across files puts theirs there, also of a file whose other blocks are kept.
    if (held == nullptr && forward_ != &ahead_ && number < needed) held = ahead_.Find(number);
    if (held == nullptr) {
      // A block that the program waits for comes by itself, and so is here sooner.
      const bool now = number < needed;
      const uint64_t most = now ? needed - number : piece - number % piece;
      held = forward_->Fetch(number, most, now ? BlockTier::Need::kNow : BlockTier::Need::kAhead);
    }
    if (held == nullptr) return;  // no memory for more; what is there has to do
    const uint64_t next = BlocksUntil(held->range().end());
    for (; number < next; ++number) blocks_.emplace(number, held);
  }
}

// Returns the piece that was fetched for later reads, if it is there or comes sooner than one that is requested now.
ReadWindow::HeldPiece ReadWindow::FindAround(uint64_t number) const {
  HeldPiece piece = around_.Find(number);
  if (piece == nullptr || piece->took()) return piece;
  return surplus_.ComesSooner(around_tier_.now() - piece->asked_at()) ? piece : nullptr;
}

// Returns those that have the bytes, if all of them are held, or one read before. Returns none if the bytes have to be
// asked for.
ReadWindow::Found ReadWindow::PiecesOf(uint64_t offset, uint64_t end) {
  Found found;
  bool is_first_use = false;
  for (uint64_t covered = offset; covered < end; covered = found.pieces.back()->range().end()) {
    const uint64_t number = covered / kBlock;
    const auto held = blocks_.find(number);
    HeldPiece piece = held != blocks_.end() ? held->second : ahead_.Find(number);
    if (piece == nullptr) {
      piece = FindAround(number);
      if (piece == nullptr) {
        if (is_first_use) surplus_.OnHit();
        return {};
      }
      found.has_surplus = true;
      is_first_use = piece->Use(number) || is_first_use;
    }
    found.pieces.push_back(std::move(piece));
  }
  if (is_first_use) surplus_.OnHit();
  // A program that waits for nothing asks for nothing: so what has been earned is spent here, too.
  if (found.has_surplus && surplus_.is_kept() && asked_until_ < blocks_in_all_) FetchAround(asked_until_);
  return found;
}

// Those that have come need not be held any more.
void ReadWindow::NoteArrivals() {
  std::erase_if(surplus_in_flight_, [this](const Surplus& one) {
    const std::optional<std::chrono::nanoseconds> took = one.piece->took();
    if (!took) return false;
    surplus_bytes_in_flight_ -= one.piece->range().length;
    if (!one.piece->failed()) surplus_.OnArrival(one.piece->range().length, *took, one.together);
    return true;
  });
}

// Takes room for all of the file among what is kept.
bool ReadWindow::TakeRoom() {
  if (room_ == nullptr) room_ = around_.TakeRoom(around_room_);
  return room_ != nullptr;
}

// Returns the first block from this one on that is neither there nor in flight, if it is near. In a file that is kept,
// any block is as likely to be read as a near one.
std::optional<uint64_t> ReadWindow::NextMissing(uint64_t number) {
  const uint64_t end = std::min(number + kMaxBlocksSought, blocks_in_all_);
  for (; number < end; ++number) {
    if (!around_.Has(number)) return number;
  }
  if (!surplus_.is_kept()) return std::nullopt;
  while (asked_until_ < blocks_in_all_ && around_.Has(asked_until_)) ++asked_until_;
  if (asked_until_ == blocks_in_all_) return std::nullopt;
  return asked_until_;
}

// Fetches as many blocks around this one as pay, of those that are not there.
void ReadWindow::FetchAround(uint64_t number) {
  if (surplus_.WantsRoom() && TakeRoom()) surplus_.OnRoom();
  const uint64_t most_bytes = around_tier_.keep_bytes() / kShareInFlight;
  while (surplus_in_flight_.size() < kMaxSurplusInFlight) {
    const uint64_t blocks = std::min(surplus_.Piece(), std::bit_floor(most_bytes)) / kBlock;
    if (blocks == 0 || surplus_bytes_in_flight_ + blocks * kBlock > most_bytes) return;
    const std::optional<uint64_t> missing = NextMissing(number);
    if (!missing) return;
    const uint64_t least = *missing - *missing % blocks;
    uint64_t first = *missing;
    while (first > least && !around_.Has(first - 1)) --first;
    HeldPiece held = around_.Fetch(first, least + blocks - first, BlockTier::Need::kAhead);
    if (held == nullptr) return;  // no memory
    const ByteRange asked = held->range();
    surplus_.OnFetch(asked.length);
    surplus_bytes_in_flight_ += asked.length;
    surplus_in_flight_.push_back({std::move(held), surplus_in_flight_.size() + 1});
    if (!surplus_.is_kept()) return;
    number = BlocksUntil(asked.end());
  }
}

absl::StatusOr<FileBytes> ReadWindow::ReadAtRandom(uint64_t offset, uint64_t size, const Patience& patience) {
  uint64_t together = 0;
  {
    std::lock_guard lock(mutex_);
    together = ++at_random_;
    const uint64_t number = offset / kBlock;
    // It may have been there, and be gone.
    if (!around_.Has(number)) asked_until_ = std::min(asked_until_, number);
    FetchAround(number);
  }
  const BlockTier::TimePoint began = around_tier_.now();
  absl::StatusOr<FileBytes> bytes = ReadAlone(offset, size, patience);
  std::lock_guard lock(mutex_);
  --at_random_;
  // A wait of several reads at a time is lost once.
  if (bytes.ok()) surplus_.OnMiss(size, (around_tier_.now() - began) / together);
  return bytes;
}

absl::StatusOr<FileBytes> ReadWindow::ReadAlone(uint64_t offset, uint64_t size, const Patience& patience) {
  // The read has memory of its own, since the answer may come after this call has ended.
  struct Alone {
    Reservation reservation;
    Buffer bytes;
  };
  auto alone = std::make_shared<Alone>();
  alone->reservation = memory_.TryReserve(size);
  if (!alone->reservation) {
    return absl::ResourceExhaustedError(uri_ + ": there is no memory to read it; raise --memory");
  }
  alone->bytes = Buffer(size);
  std::stop_source stop;
  GetOptions get;
  get.range = {offset, size};
  get.if_match = node_.etag;
  get.stop = stop.get_token();
  Completion<absl::StatusOr<GetResult>> call;
  store_.Get(node_.key, alone->bytes.span(), std::move(get),
             [alone, done = call.Callback()](absl::StatusOr<GetResult> result) { done(std::move(result)); });
  const absl::Status waited = patience.Wait(call, uri_).status();
  if (!waited.ok()) {
    stop.request_stop();
    return waited;
  }
  FileBytes bytes;
  bytes.parts.push_back(alone->bytes.span());
  bytes.owners.push_back(std::move(alone));
  return bytes;
}

}  // namespace millrace
