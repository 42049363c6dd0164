#include "mount/read_window.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace millrace {

namespace {

// Reads that are so far from the last one still follow it: the kernel sends several at a time, in any order.
constexpr uint64_t kNear = uint64_t{2} << 20;
constexpr uint64_t kBlock = BlockTier::kBlock;
// A program that has read so much in a row will go on.
constexpr uint64_t kStreak = uint64_t{256} << 10;
constexpr uint64_t kMaxAhead = uint64_t{32} << 20;

}  // namespace

ReadWindow::ReadWindow(ObjectStore& store, MemoryBudget& memory, BlockTier& tier, Node node)
    : store_(store), memory_(memory), tier_(tier), node_(std::move(node)), uri_(store.Uri(node_.key)) {}

absl::StatusOr<size_t> ReadWindow::Read(uint64_t offset, MutableByteSpan into, const Patience& patience) {
  if (offset >= node_.size || into.empty()) return 0;
  into = into.first(std::min<uint64_t>(into.size(), node_.size - offset));
  const uint64_t end = offset + into.size();
  Holds holds;
  {
    std::lock_guard lock(mutex_);
    Follow(offset, end);
    if (streak_ >= kStreak || node_.size <= kBlock) FetchAhead(offset, end);
    holds = HoldsOf(offset, end);
    if (!holds.empty()) DropBehind(offset);
  }
  if (holds.empty()) {
    RETURN_IF_ERROR(ReadAlone(offset, into, patience));
    return into.size();
  }
  const absl::Status copied = CopyFromBlocks(holds, offset, into, patience);
  if (!copied.ok()) {
    std::lock_guard lock(mutex_);
    for (uint64_t number = offset / kBlock; number * kBlock < end; ++number) blocks_.erase(number);
    return copied;  // the next read asks again
  }
  return into.size();
}

void ReadWindow::Follow(uint64_t offset, uint64_t end) {
  const bool near = offset <= farthest_ + kNear && offset + kNear >= farthest_;
  if (!near) {
    streak_ = 0;
    farthest_ = 0;
    blocks_.clear();
  }
  if (end > farthest_) {
    // Of the very first read at the beginning of a file all counts: most programs read it to its end.
    streak_ += offset == 0 && farthest_ == 0 ? std::max(kStreak, end) : end - std::max(offset, farthest_);
    farthest_ = end;
  }
}

// The blocks of the range, if all of them are held, or one read before; none if the bytes have to be asked for.
ReadWindow::Holds ReadWindow::HoldsOf(uint64_t offset, uint64_t end) {
  Holds holds;
  for (uint64_t number = offset / kBlock; number * kBlock < end; ++number) {
    const auto found = blocks_.find(number);
    std::shared_ptr<BlockTier::Hold> hold = found != blocks_.end() ? found->second : nullptr;
    if (hold == nullptr && tier_.Has(node_, number)) hold = tier_.Fetch(node_, number);
    if (hold == nullptr) return {};
    holds.push_back(std::move(hold));
  }
  return holds;
}

void ReadWindow::FetchAhead(uint64_t offset, uint64_t end) {
  // One block, then as much again as was read.
  const uint64_t ahead = std::min(kMaxAhead, std::max(kBlock, 2 * streak_));
  const uint64_t until = std::min(node_.size, end + (streak_ > kStreak ? ahead : 0));
  for (uint64_t number = offset / kBlock; number * kBlock < until; ++number) {
    if (blocks_.contains(number)) continue;
    std::shared_ptr<BlockTier::Hold> hold = tier_.Fetch(node_, number);
    if (hold == nullptr) return;  // no memory for more; what is there has to do
    blocks_.emplace(number, std::move(hold));
  }
}

void ReadWindow::DropBehind(uint64_t offset) {
  if (offset < kNear) return;
  blocks_.erase(blocks_.begin(), blocks_.lower_bound((offset - kNear) / kBlock));
}

absl::Status ReadWindow::CopyFromBlocks(const Holds& holds, uint64_t offset, MutableByteSpan into,
                                        const Patience& patience) {
  size_t done = 0;
  for (const std::shared_ptr<BlockTier::Hold>& hold : holds) {
    ASSIGN_OR_RETURN(const ByteSpan block, hold->Wait(patience));
    const ByteSpan bytes = block.subspan((offset + done) % kBlock);
    const size_t count = std::min(bytes.size(), into.size() - done);
    std::memcpy(into.data() + done, bytes.data(), count);
    done += count;
  }
  return absl::OkStatus();
}

absl::Status ReadWindow::ReadAlone(uint64_t offset, MutableByteSpan into, const Patience& patience) {
  // Memory of its own, since the answer may come after this call has ended.
  struct Alone {
    Reservation reservation;
    Buffer bytes;
  };
  auto alone = std::make_shared<Alone>();
  alone->reservation = memory_.TryReserve(into.size());
  if (!alone->reservation) {
    return absl::ResourceExhaustedError(uri_ + ": there is no memory to read it; raise --memory");
  }
  alone->bytes = Buffer(into.size());
  std::stop_source stop;
  GetOptions get;
  get.range = {offset, into.size()};
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
  std::memcpy(into.data(), alone->bytes.span().data(), into.size());
  return absl::OkStatus();
}

}  // namespace millrace
