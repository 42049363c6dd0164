#include "mount/read_window.h"

#include <algorithm>
#include <iterator>
#include <stop_token>
#include <utility>

namespace millrace {

namespace {

constexpr uint64_t kBlock = BlockTier::kBlock;
static_assert(kBlock == ReadPattern::kBlockBytes);
constexpr uint64_t kMaxAhead = uint64_t{64} << 20;
constexpr uint64_t kShareAhead = 8;  // of the budget, for one file

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

ReadWindow::ReadWindow(ObjectStore& store, MemoryBudget& memory, BlockTier& tier, Node node)
    : store_(store),
      memory_(memory),
      tier_(tier),
      node_(std::move(node)),
      uri_(store.Uri(node_.key)),
      pattern_(node_.size, MaxAhead(memory)) {}

absl::StatusOr<FileBytes> ReadWindow::Read(uint64_t offset, size_t size, const Patience& patience) {
  if (offset >= node_.size || size == 0) return FileBytes();
  const uint64_t end = offset + std::min<uint64_t>(size, node_.size - offset);
  std::vector<HeldPiece> pieces;
  {
    std::lock_guard lock(mutex_);
    const ReadAdvice advice = pattern_.OnRead(offset, end);
    for (const ByteRange behind : advice.behind) Drop(behind);
    DropFailed(offset, end);
    if (advice.in_blocks) FetchAhead(offset, end, advice);
    pieces = PiecesOf(offset, end);
  }
  if (pieces.empty()) return ReadAlone(offset, end - offset, patience);
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
  blocks_.erase(blocks_.lower_bound(range.offset / kBlock), blocks_.lower_bound(BlocksUntil(range.end())));
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
  uint64_t covered = offset;
  while (covered < end) {
    const uint64_t number = covered / kBlock;
    const auto found = blocks_.find(number);
    HeldPiece piece = found != blocks_.end() ? found->second : nullptr;
    if (piece == nullptr && tier_.Has(node_, number)) piece = tier_.Fetch(node_, number);
    if (piece == nullptr) return {};
    covered = piece->range().end();
    pieces.push_back(std::move(piece));
  }
  return pieces;
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
