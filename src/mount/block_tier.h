#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>

#include "base/buffer.h"
#include "base/memory_budget.h"
#include "mount/inode_table.h"
#include "mount/patience.h"
#include "store/object_store.h"

namespace millrace {

/// Blocks of objects in memory, each of one version. Everybody who wants a block shares the request for it, and what
/// was read last stays, so that the kernel can ask again and what was read ahead is there. Thread-safe.
///
/// Blocks are reserved in the budget. Those that nobody holds take `keep_bytes` at most, and go, the one that was used
/// longest ago first, when there is no room for others. A request that nobody waits for any more is cancelled.
class BlockTier {
 public:
  static constexpr uint64_t kBlock = uint64_t{1} << 20;

  /// Both must outlive it, and requests in flight, which the store waits for.
  BlockTier(ObjectStore& store, MemoryBudget& memory, uint64_t keep_bytes);
  /// All Holds must be gone.
  ~BlockTier();
  BlockTier(const BlockTier&) = delete;
  BlockTier& operator=(const BlockTier&) = delete;

  struct Block;
  /// A block that stays in memory as long as it is held. Move-only.
  class Hold {
   public:
    Hold(BlockTier& tier, std::shared_ptr<Block> block) : tier_(&tier), block_(std::move(block)) {}
    Hold(Hold&& other) noexcept : tier_(other.tier_), block_(std::move(other.block_)) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold();

    /// Waits for the bytes, which are valid as long as it is held. Errors are those of the store, and of Patience; the
    /// next Fetch asks again.
    absl::StatusOr<ByteSpan> Wait(const Patience& patience) const;

   private:
    BlockTier* tier_;
    std::shared_ptr<Block> block_;
  };

  /// Block `number` of that version, there or in flight. Null if the budget has no room for it.
  std::shared_ptr<Hold> Fetch(const Node& node, uint64_t number);
  /// Whether it is there or in flight.
  bool Has(const Node& node, uint64_t number) const;

  uint64_t bytes() const;

 private:
  struct Entry {
    std::shared_ptr<Block> block;
    std::list<std::string>::iterator turn;
  };

  static std::string IdOf(const Node& node, uint64_t number);
  void Release(Block& block);
  void Evict(uint64_t room);
  void Erase(std::unordered_map<std::string, Entry>::iterator at);

  ObjectStore& store_;
  MemoryBudget& memory_;
  const uint64_t keep_bytes_;

  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
  std::list<std::string> turns_;  // the ones that were used last at the end
  uint64_t bytes_ = 0;
};

}  // namespace millrace
