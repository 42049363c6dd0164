#include "mount/read_window.h"

#include <algorithm>
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
// Pieces around reads at random that are in flight at a time.
constexpr size_t kMaxSurplusInFlight = 8;
// How far is looked for one that is missing.
constexpr uint64_t kMaxBlocksSought = 64;
static_assert(kBlock == ReadSurplus::kBlockBytes);

uint64_t MaxAhead(const MemoryBudget& memory) {
  return std::min(kMaxAhead, memory.limit() / kShareAhead);
}

// One past the last block that begins before the offset.
uint64_t BlocksUntil(uint64_t offset) {
  return (offset + kBlock - 1) / kBlock;
}

}  // namespace

size_t FileBytes::size() const {
  size_t size = 0;
  for (const ByteSpan part : parts) size += part.size();
  return size;
}

ReadWindow::ReadWindow(const Shared& shared, Node node)
    : store_(shared.store),
      memory_(shared.memory),
      tier_(shared.ahead),
      around_(shared.around),
      around_room_(shared.room),
      node_(std::move(node)),
      uri_(store_.Uri(node_.key)),
      pattern_(node_.size, MaxAhead(memory_)),
      surplus_(node_.size, around_.keep_bytes()) {}

absl::StatusOr<FileBytes> ReadWindow::Read(uint64_t offset, size_t size, const Patience& patience) {
  if (offset >= node_.size || size == 0) return FileBytes();
  const uint64_t end = offset + std::min<uint64_t>(size, node_.size - offset);
  std::vector<HeldPiece> pieces;
  bool in_blocks = false;
  {
    std::lock_guard lock(mutex_);
    const ReadAdvice advice = pattern_.OnRead(offset, end);
    for (const ByteRange behind : advice.behind) Drop(behind);
    DropFailed(offset, end);
    in_blocks = advice.in_blocks;
    if (in_blocks) FetchAhead(offset, end, advice);
    pieces = PiecesOf(offset, end);
    NoteArrivals();
  }
  if (pieces.empty()) {
    return in_blocks ? ReadAlone(offset, end - offset, patience) : ReadAtRandom(offset, end - offset, patience);
  }
  FileBytes bytes;
  for (const HeldPiece& piece : pieces) {
    // If it fails, the next read asks again.
    ASSIGN_OR_RETURN(const ByteSpan all, piece->Wait(patience));
    const ByteRange there = piece->range();
    const uint64_t from = std::max(offset, there.offset);
    bytes.parts.push_back(all.subspan(from - there.offset, std::min(end, there.end()) - from));
    bytes.owners.push_back(piece);
  }
  return bytes;
}

void ReadWindow::Drop(ByteRange range) {
  const auto first = blocks_.lower_bound(range.offset / kBlock);
  const auto last = blocks_.lower_bound(BlocksUntil(range.end()));
  for (auto block = first; block != last; ++block) {
    // Its last block, as pieces are read forward.
    if (BlocksUntil(block->second->range().end()) == block->first + 1) block->second->UseUp();
  }
  blocks_.erase(first, last);
}

// What was read ahead in vain, maybe long ago, is no error of a program that reads now.
void ReadWindow::DropFailed(uint64_t offset, uint64_t end) {
  const auto last = blocks_.lower_bound(BlocksUntil(end));
  for (auto block = blocks_.lower_bound(offset / kBlock); block != last;) {
    block = block->second->failed() ? blocks_.erase(block) : std::next(block);
  }
}

void ReadWindow::FetchAhead(uint64_t offset, uint64_t end, const ReadAdvice& advice) {
  const uint64_t piece = advice.piece_bytes / kBlock;
  const uint64_t needed = BlocksUntil(end);
  const uint64_t until = BlocksUntil(std::max(end, advice.until));
  uint64_t number = offset / kBlock;
  for (auto block = blocks_.lower_bound(number); number < until; block = blocks_.lower_bound(number)) {
    for (; block != blocks_.end() && block->first == number; ++block) ++number;
    if (number >= until) return;
    // What the program waits for comes by itself, and so is here sooner.
    const bool now = number < needed;
    const uint64_t most = now ? needed - number : piece - number % piece;
    const HeldPiece held = tier_.Fetch(node_, number, most, now ? BlockTier::Need::kNow : BlockTier::Need::kAhead);
    if (held == nullptr) return;  // no memory for more; what is there has to do
    const uint64_t next = BlocksUntil(held->range().end());
    for (; number < next; ++number) blocks_.emplace(number, held);
  }
}

// Those that have the bytes, if all of them are held, or one read before; none if the bytes have to be asked for.
std::vector<ReadWindow::HeldPiece> ReadWindow::PiecesOf(uint64_t offset, uint64_t end) {
  std::vector<HeldPiece> pieces;
  bool is_surplus = false;
  uint64_t covered = offset;
  while (covered < end) {
    const uint64_t number = covered / kBlock;
    const auto found = blocks_.find(number);
    HeldPiece piece = found != blocks_.end() ? found->second : nullptr;
    if (piece == nullptr && tier_.Has(node_, number)) piece = tier_.Fetch(node_, number);
    if (piece == nullptr && around_.Has(node_, number)) {
      piece = around_.Fetch(node_, number);
      is_surplus = true;
    }
    if (piece == nullptr) return {};
    covered = piece->range().end();
    pieces.push_back(std::move(piece));
  }
  if (is_surplus) surplus_.OnHit();
  return pieces;
}

// Those that have come need not be held any more.
void ReadWindow::NoteArrivals() {
  std::erase_if(surplus_in_flight_, [this](const Surplus& one) {
    const std::optional<std::chrono::nanoseconds> took = one.piece->took();
    if (took && !one.piece->failed()) surplus_.OnArrival(one.piece->range().length, *took, one.together);
    return took.has_value();
  });
}

// The first block from this one on that is not there.
std::optional<uint64_t> ReadWindow::NextMissing(uint64_t number) const {
  const uint64_t end = std::min(number + kMaxBlocksSought, BlocksUntil(node_.size));
  for (; number < end; ++number) {
    if (!around_.Has(node_, number)) return number;
  }
  return std::nullopt;
}

// As many blocks around this one as pay, of those that are not there. Of a file that is kept, what follows is as likely
// to be read as what is near.
void ReadWindow::FetchAround(uint64_t number) {
  if (surplus_.WantsRoom()) {
    room_ = around_room_.TryReserve(node_.size);
    if (room_) surplus_.OnRoom();
  }
  std::optional<uint64_t> missing = NextMissing(number);
  while (missing && surplus_in_flight_.size() < kMaxSurplusInFlight) {
    const uint64_t blocks = surplus_.Piece() / kBlock;
    if (blocks == 0) return;
    const uint64_t least = *missing - *missing % blocks;
    uint64_t first = *missing;
    while (first > least && !around_.Has(node_, first - 1)) --first;
    HeldPiece held = around_.Fetch(node_, first, least + blocks - first, BlockTier::Need::kAhead);
    if (held == nullptr) return;  // no memory
    surplus_.OnFetch(held->range().length);
    missing = surplus_.is_kept() ? NextMissing(BlocksUntil(held->range().end())) : std::nullopt;
    surplus_in_flight_.push_back({std::move(held), surplus_in_flight_.size() + 1});
  }
}

absl::StatusOr<FileBytes> ReadWindow::ReadAtRandom(uint64_t offset, uint64_t size, const Patience& patience) {
  uint64_t together = 0;
  {
    std::lock_guard lock(mutex_);
    together = ++at_random_;
    FetchAround(offset / kBlock);
  }
  const auto began = std::chrono::steady_clock::now();
  absl::StatusOr<FileBytes> bytes = ReadAlone(offset, size, patience);
  std::lock_guard lock(mutex_);
  --at_random_;
  // What several wait for at a time is lost once.
  if (bytes.ok()) surplus_.OnMiss(size, (std::chrono::steady_clock::now() - began) / together);
  return bytes;
}

absl::StatusOr<FileBytes> ReadWindow::ReadAlone(uint64_t offset, uint64_t size, const Patience& patience) {
  // Memory of its own, since the answer may come after this call has ended.
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
  auto expected = std::make_shared<Expected<GetResult>>();
  store_.Get(node_.key, alone->bytes.span(), std::move(get),
             [alone, done = Expected<GetResult>::Callback(expected)](absl::StatusOr<GetResult> result) mutable {
               done(std::move(result));
             });
  const absl::Status waited = expected->Wait(patience, uri_).status();
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
