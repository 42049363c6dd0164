#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "mount/block_tier.h"
#include "mount/inode_table.h"
#include "mount/patience.h"
#include "store/object_store.h"

namespace millrace {

/// An open file: one version of an object, which any number of threads read at any places.
///
/// Reads that follow one another, also in a somewhat other order, as the kernel sends them, are read ahead in blocks of
/// the tier, the further the longer it lasts, up to 32 MiB. Other reads ask for just their bytes, unless their block is
/// there. If the budget has no room for blocks, nothing is read ahead.
///
/// The store, the budget and the tier must outlive it and its requests, which the store waits for.
class ReadWindow {
 public:
  ReadWindow(ObjectStore& store, MemoryBudget& memory, BlockTier& tier, Node node);
  ReadWindow(const ReadWindow&) = delete;
  ReadWindow& operator=(const ReadWindow&) = delete;

  /// Reads from `offset` on until `into` is full or the file ends, and returns how many bytes that were.
  /// FailedPrecondition if the object was replaced after the file was opened, DeadlineExceeded and Cancelled as
  /// Patience says, ResourceExhausted if the budget has no room even for these bytes, and the errors of the store.
  absl::StatusOr<size_t> Read(uint64_t offset, MutableByteSpan into, const Patience& patience);

 private:
  using Holds = std::vector<std::shared_ptr<BlockTier::Hold>>;

  void Follow(uint64_t offset, uint64_t end);
  void FetchAhead(uint64_t offset, uint64_t end);
  Holds HoldsOf(uint64_t offset, uint64_t end);
  void DropBehind(uint64_t offset);
  absl::Status CopyFromBlocks(const Holds& holds, uint64_t offset, MutableByteSpan into, const Patience& patience);
  absl::Status ReadAlone(uint64_t offset, MutableByteSpan into, const Patience& patience);

  ObjectStore& store_;
  MemoryBudget& memory_;
  BlockTier& tier_;
  const Node node_;
  const std::string uri_;

  std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<BlockTier::Hold>> blocks_;
  uint64_t farthest_ = 0;  // the end of the reads so far
  uint64_t streak_ = 0;    // bytes that were read one after the other up to there
};

}  // namespace millrace
