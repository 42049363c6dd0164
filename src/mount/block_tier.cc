#include "mount/block_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace millrace {

struct BlockTier::Block {
  std::string id;
  std::string uri;
  uint64_t length = 0;
  std::stop_source stop;
  int holds = 0;  // under the mutex of the tier

  std::mutex mutex;
  std::condition_variable changed;
  Reservation memory;
  Buffer bytes;
  std::optional<absl::Status> ended;

  bool Failed() {
    std::lock_guard lock(mutex);
    return ended.has_value() && !ended->ok();
  }
};

BlockTier::BlockTier(ObjectStore& store, MemoryBudget& memory, uint64_t keep_bytes)
    : store_(store), memory_(memory), keep_bytes_(keep_bytes) {}

BlockTier::~BlockTier() {
  for (auto& [id, entry] : entries_) entry.block->stop.request_stop();
}

std::string BlockTier::IdOf(const Node& node, uint64_t number) {
  return fmt::format("{}\n{}\n{}", number, node.etag.empty() ? fmt::format("{}", node.modified_ms) : node.etag,
                     node.key);
}

std::shared_ptr<BlockTier::Hold> BlockTier::Fetch(const Node& node, uint64_t number) {
  std::unique_lock lock(mutex_);
  const std::string id = IdOf(node, number);
  const auto found = entries_.find(id);
  if (found != entries_.end() && found->second.block->Failed()) {
    Erase(found);  // those who hold it are told; others ask again
  } else if (found != entries_.end()) {
    ++found->second.block->holds;
    turns_.splice(turns_.end(), turns_, found->second.turn);
    return std::make_shared<Hold>(*this, found->second.block);
  }
  const uint64_t offset = number * kBlock;
  const uint64_t length = std::min(kBlock, node.size - offset);
  if (bytes_ + length > keep_bytes_) Evict(bytes_ + length - keep_bytes_);
  auto block = std::make_shared<Block>();
  block->memory = memory_.TryReserve(length);
  if (!block->memory) {
    Evict(length);
    block->memory = memory_.TryReserve(length);
  }
  if (!block->memory) return nullptr;
  block->id = id;
  block->uri = store_.Uri(node.key);
  block->length = length;
  block->bytes = Buffer(length);
  block->holds = 1;
  bytes_ += length;
  entries_.emplace(id, Entry{block, turns_.insert(turns_.end(), id)});
  auto hold = std::make_shared<Hold>(*this, block);
  lock.unlock();

  GetOptions get;
  get.range = {offset, length};
  get.if_match = node.etag;
  get.stop = block->stop.get_token();
  store_.Get(node.key, block->bytes.span(), std::move(get), [block](const absl::StatusOr<GetResult>& result) {
    std::lock_guard block_lock(block->mutex);
    block->ended = result.status();
    block->changed.notify_all();
  });
  return hold;
}

bool BlockTier::Has(const Node& node, uint64_t number) const {
  std::lock_guard lock(mutex_);
  return entries_.contains(IdOf(node, number));
}

uint64_t BlockTier::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

BlockTier::Hold::~Hold() {
  if (block_ != nullptr) tier_->Release(*block_);
}

absl::StatusOr<ByteSpan> BlockTier::Hold::Wait(const Patience& patience) const {
  std::unique_lock lock(block_->mutex);
  RETURN_IF_ERROR(patience.Wait(lock, block_->changed, block_->uri, [this] { return block_->ended.has_value(); }));
  RETURN_IF_ERROR(*block_->ended);
  return ByteSpan(block_->bytes.span());
}

void BlockTier::Release(Block& block) {
  std::lock_guard lock(mutex_);
  if (--block.holds > 0) return;
  const auto found = entries_.find(block.id);
  if (found == entries_.end() || found->second.block.get() != &block) return;
  bool failed = false;
  {
    std::lock_guard block_lock(block.mutex);
    if (block.ended.has_value() && block.ended->ok()) return;
    failed = block.ended.has_value();
  }
  if (!failed) block.stop.request_stop();
  Erase(found);
}

void BlockTier::Erase(std::unordered_map<std::string, Entry>::iterator at) {
  bytes_ -= at->second.block->length;
  turns_.erase(at->second.turn);
  entries_.erase(at);
}

void BlockTier::Evict(uint64_t room) {
  uint64_t made = 0;
  for (auto turn = turns_.begin(); turn != turns_.end() && made < room;) {
    const auto found = entries_.find(*turn++);
    if (found->second.block->holds > 0) continue;
    made += found->second.block->length;
    Erase(found);
  }
}

}  // namespace millrace
