#include "mount/read_window.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace millrace {

namespace {

// Reads that are so far from the last one still follow it: the kernel sends several at a time, in any order.
constexpr uint64_t kNear = uint64_t{2} << 20;
// A program that has read so much in a row will go on.
constexpr uint64_t kStreak = uint64_t{256} << 10;
constexpr uint64_t kMaxAhead = uint64_t{32} << 20;

}  // namespace

struct ReadWindow::Shared {
  std::mutex mutex;
  std::condition_variable changed;
};

struct ReadWindow::Block {
  Reservation reservation;
  Buffer bytes{0};
  std::optional<absl::Status> ended;
};

ReadWindow::ReadWindow(ObjectStore& store, MemoryBudget& memory, Node node)
    : store_(store),
      memory_(memory),
      node_(std::move(node)),
      uri_(store.Uri(node_.key)),
      shared_(std::make_shared<Shared>()) {}

ReadWindow::~ReadWindow() {
  stop_.request_stop();
}

absl::StatusOr<size_t> ReadWindow::Read(uint64_t offset, MutableByteSpan into, const Patience& patience) {
  if (offset >= node_.size || into.empty()) return 0;
  into = into.first(std::min<uint64_t>(into.size(), node_.size - offset));
  const uint64_t end = offset + into.size();
  {
    Lock lock(shared_->mutex);
    Follow(offset, end);
    if (streak_ >= kStreak || node_.size <= kBlock) FetchAhead(offset, end);
    if (NeedsBlocks(offset, end)) {
      RETURN_IF_ERROR(CopyFromBlocks(offset, into, patience, lock));
      DropBehind(offset);
      return into.size();
    }
  }
  RETURN_IF_ERROR(ReadAlone(offset, into, patience));
  return into.size();
}

void ReadWindow::Follow(uint64_t offset, uint64_t end) {
  const bool near = offset <= farthest_ + kNear && offset + kNear >= farthest_;
  if (!near) {
    streak_ = 0;
    farthest_ = 0;
    blocks_.clear();  // those in flight are let go of when they end
  }
  if (end > farthest_) {
    // Of the very first read at the beginning of a file all counts: most programs read it to its end.
    streak_ += offset == 0 && farthest_ == 0 ? std::max(kStreak, end) : end - std::max(offset, farthest_);
    farthest_ = end;
  }
}

bool ReadWindow::NeedsBlocks(uint64_t offset, uint64_t end) const {
  for (uint64_t number = offset / kBlock; number * kBlock < end; ++number) {
    if (!blocks_.contains(number)) return false;
  }
  return true;
}

void ReadWindow::FetchAhead(uint64_t offset, uint64_t end) {
  // One block, then as much again as was read.
  const uint64_t ahead = std::min(kMaxAhead, std::max(kBlock, 2 * streak_));
  const uint64_t until = std::min(node_.size, end + (streak_ > kStreak ? ahead : 0));
  for (uint64_t number = offset / kBlock; number * kBlock < until; ++number) {
    if (blocks_.contains(number)) continue;
    std::shared_ptr<Block> block = FetchBlock(number);
    if (block == nullptr) return;  // no memory for more; what is there has to do
    blocks_.emplace(number, std::move(block));
  }
}

std::shared_ptr<ReadWindow::Block> ReadWindow::FetchBlock(uint64_t number) {
  const uint64_t offset = number * kBlock;
  const uint64_t length = std::min(kBlock, node_.size - offset);
  auto block = std::make_shared<Block>();
  block->reservation = memory_.TryReserve(length);
  if (!block->reservation) return nullptr;
  block->bytes = Buffer(length);
  GetOptions get;
  get.range = {offset, length};
  get.if_match = node_.etag;
  get.stop = stop_.get_token();
  store_.Get(node_.key, block->bytes.span(), std::move(get),
             [block, shared = shared_](const absl::StatusOr<GetResult>& result) {
               std::lock_guard lock(shared->mutex);
               block->ended = result.status();
               shared->changed.notify_all();
             });
  return block;
}

void ReadWindow::DropBehind(uint64_t offset) {
  if (offset < kNear) return;
  blocks_.erase(blocks_.begin(), blocks_.lower_bound((offset - kNear) / kBlock));
}

absl::Status ReadWindow::CopyFromBlocks(uint64_t offset, MutableByteSpan into, const Patience& patience, Lock& lock) {
  for (size_t done = 0; done < into.size();) {
    const uint64_t at = offset + done;
    const auto found = blocks_.find(at / kBlock);
    // Another thread may have jumped elsewhere, and let go of the block while this one waited for the one before.
    const std::shared_ptr<Block> block = found != blocks_.end() ? found->second : FetchBlock(at / kBlock);
    if (block == nullptr) return absl::ResourceExhaustedError(uri_ + ": there is no memory to read it; raise --memory");
    RETURN_IF_ERROR(patience.Wait(lock, shared_->changed, uri_, [&] { return block->ended.has_value(); }));
    if (!block->ended->ok()) {
      blocks_.erase(at / kBlock);  // the next read asks again
      return *block->ended;
    }
    const ByteSpan bytes = ByteSpan(block->bytes.span()).subspan(at % kBlock);
    const size_t count = std::min(bytes.size(), into.size() - done);
    std::memcpy(into.data() + done, bytes.data(), count);
    done += count;
  }
  return absl::OkStatus();
}

absl::Status ReadWindow::ReadAlone(uint64_t offset, MutableByteSpan into, const Patience& patience) {
  auto block = std::make_shared<Block>();
  block->reservation = memory_.TryReserve(into.size());
  if (!block->reservation) {
    return absl::ResourceExhaustedError(uri_ + ": there is no memory to read it; raise --memory");
  }
  // Memory of its own, since the answer may come after this call has ended.
  block->bytes = Buffer(into.size());
  std::stop_source stop;
  GetOptions get;
  get.range = {offset, into.size()};
  get.if_match = node_.etag;
  get.stop = stop.get_token();
  store_.Get(node_.key, block->bytes.span(), std::move(get),
             [block, shared = shared_](const absl::StatusOr<GetResult>& result) {
               std::lock_guard lock(shared->mutex);
               block->ended = result.status();
               shared->changed.notify_all();
             });
  Lock lock(shared_->mutex);
  absl::Status waited = patience.Wait(lock, shared_->changed, uri_, [&] { return block->ended.has_value(); });
  lock.unlock();
  if (!waited.ok()) {
    stop.request_stop();
    return waited;
  }
  RETURN_IF_ERROR(*block->ended);
  std::memcpy(into.data(), block->bytes.span().data(), into.size());
  return absl::OkStatus();
}

}  // namespace millrace
