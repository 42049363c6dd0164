#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/memory_budget.h"
#include "mount/block_tier.h"
#include "mount/inode_table.h"
#include "mount/patience.h"
#include "mount/read_pattern.h"
#include "mount/read_surplus.h"
#include "store/object_store.h"

namespace millrace {

/// Holds bytes of a file, one behind the other, in memory that lives as long as this does.
struct FileBytes {
  std::vector<ByteSpan> parts;
  std::vector<std::shared_ptr<const void>> owners;
  size_t size() const;
};

/// Reads an open file: one version of an object, which any number of threads read at any places.
///
/// Reads that follow one another are read ahead in blocks of the tier, the further the longer it lasts. The limits are
/// 64 MiB and an eighth of the budget, in requests that grow up to 8 MiB (read_pattern.h). Other reads ask for just
/// their bytes, unless their block is there or comes sooner. If it pays, blocks around them are fetched as well, for
/// later reads (read_surplus.h). If the budget has no room for blocks, there are none.
///
/// All others must outlive it and its requests, which the store waits for.
class ReadWindow {
 public:
  /// Names the objects that all open files share.
  struct Shared {
    ObjectStore& store;
    MemoryBudget& memory;
    BlockTier& ahead;    // blocks that are read ahead
    BlockTier& around;   // blocks around reads at random, which are kept for longer than what is read once
    MemoryBudget& room;  // of these, for files that are kept whole
  };
  /// Says if the kernel keeps the bytes that were read. If not (O_DIRECT), a program may well ask for it again: then a
  /// file that has room in `room` is kept whole, also if it is read forward.
  enum class Kernel { kKeeps, kKeepsNothing };

  ReadWindow(const Shared& shared, Node node, Kernel kernel = Kernel::kKeeps);
  ReadWindow(const ReadWindow&) = delete;
  ReadWindow& operator=(const ReadWindow&) = delete;

  /// Reads `size` bytes from `offset` on, or those until the file ends. The window may be destroyed before the bytes.
  /// FailedPrecondition if the object was replaced after the file was opened. DeadlineExceeded and Cancelled as
  /// Patience says. ResourceExhausted if the budget has no room even for these bytes. Also the errors of the store.
  absl::StatusOr<FileBytes> Read(uint64_t offset, size_t size, const Patience& patience);

 private:
  using HeldPiece = std::shared_ptr<BlockTier::Hold>;
  struct Found {
    absl::InlinedVector<HeldPiece, 2> pieces;
    bool has_surplus = false;
  };

  void Drop(ByteRange range);
  void UseUp(ByteRange range);
  void DropFailed(uint64_t offset, uint64_t end);
  void FetchAhead(uint64_t offset, uint64_t end, const ReadAdvice& advice);
  void NoteArrivals();
  bool TakeRoom();
  void FetchAround(uint64_t number);
  std::optional<uint64_t> NextMissing(uint64_t number);
  HeldPiece FindAround(uint64_t number) const;
  Found PiecesOf(uint64_t offset, uint64_t end);
  absl::StatusOr<FileBytes> ReadAtRandom(uint64_t offset, uint64_t size, const Patience& patience);
  absl::StatusOr<FileBytes> ReadAlone(uint64_t offset, uint64_t size, const Patience& patience);

  ObjectStore& store_;
  MemoryBudget& memory_;
  const BlockTier& around_tier_;
  MemoryBudget& around_room_;
  const Node node_;
  const std::string uri_;
  const uint64_t blocks_in_all_;
  const Kernel kernel_;
  const BlockTier::Version ahead_;
  const BlockTier::Version around_;

  std::mutex mutex_;
  ReadPattern pattern_;
  const BlockTier::Version* forward_ = &ahead_;  // where blocks are read ahead
  std::map<uint64_t, HeldPiece> blocks_;         // by their numbers
  ReadSurplus surplus_;
  std::shared_ptr<Reservation> room_;  // for all of the file
  struct Surplus {
    HeldPiece piece;
    uint64_t together = 0;  // pieces in flight
  };
  std::vector<Surplus> surplus_in_flight_;
  uint64_t surplus_bytes_in_flight_ = 0;
  uint64_t asked_until_ = 0;  // of a file that is kept: all blocks before this one are there or in flight, or were
  uint64_t at_random_ = 0;    // reads at random that wait for the store
};

}  // namespace millrace
