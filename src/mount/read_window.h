#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

#include "base/buffer.h"
#include "base/memory_budget.h"
#include "mount/inode_table.h"
#include "mount/patience.h"
#include "store/object_store.h"

namespace millrace {

/// An open file: one version of an object, which any number of threads read at any places.
///
/// Reads that follow one another, also in a somewhat other order, as the kernel sends them, are read ahead in blocks of
/// 1 MiB, the further the longer it lasts, up to 32 MiB. Several reads of one block share its request. Other reads ask
/// for just their bytes. Blocks are reserved in the budget; if it has no room, nothing is read ahead.
///
/// The store and the budget must outlive it and its requests, which the store waits for.
class ReadWindow {
 public:
  static constexpr uint64_t kBlock = uint64_t{1} << 20;

  ReadWindow(ObjectStore& store, MemoryBudget& memory, Node node);
  /// Lets requests in flight end by themselves, soon.
  ~ReadWindow();
  ReadWindow(const ReadWindow&) = delete;
  ReadWindow& operator=(const ReadWindow&) = delete;

  /// Reads from `offset` on until `into` is full or the file ends, and returns how many bytes that were.
  /// FailedPrecondition if the object was replaced after the file was opened, DeadlineExceeded and Cancelled as
  /// Patience says, ResourceExhausted if the budget has no room even for these bytes, and the errors of the store.
  absl::StatusOr<size_t> Read(uint64_t offset, MutableByteSpan into, const Patience& patience);

 private:
  struct Block;
  struct Shared;
  using Lock = std::unique_lock<std::mutex>;

  void Follow(uint64_t offset, uint64_t end);
  bool NeedsBlocks(uint64_t offset, uint64_t end) const;
  void FetchAhead(uint64_t offset, uint64_t end);
  std::shared_ptr<Block> FetchBlock(uint64_t number);
  void DropBehind(uint64_t offset);
  absl::Status CopyFromBlocks(uint64_t offset, MutableByteSpan into, const Patience& patience, Lock& lock);
  absl::Status ReadAlone(uint64_t offset, MutableByteSpan into, const Patience& patience);

  ObjectStore& store_;
  MemoryBudget& memory_;
  const Node node_;
  const std::string uri_;
  std::stop_source stop_;
  const std::shared_ptr<Shared> shared_;  // with the callbacks of requests: the mutex

  // Under the mutex.
  std::map<uint64_t, std::shared_ptr<Block>> blocks_;
  uint64_t farthest_ = 0;  // the end of the reads so far
  uint64_t streak_ = 0;    // bytes that were read one after the other up to there
};

}  // namespace millrace
