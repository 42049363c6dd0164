#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/buffer.h"
#include "base/memory_budget.h"
#include "mount/inode_table.h"
#include "mount/patience.h"
#include "store/object_store.h"

namespace millrace {

/// Keeps blocks of objects in memory, each of one version. Everybody who wants a block shares the request for it, and
/// what was read last stays, so that the kernel can ask again and what was read ahead is there. Thread-safe.
///
/// Neighbouring blocks that are asked for together are one piece: one request, which comes and goes as a whole. Pieces
/// are reserved in the budget. Those that nobody holds have `keep_bytes` at most (and their memory up to an eighth
/// more). When there is no room for others, those that were used up go first, then the one that was used longest ago. A
/// request that nobody waits for any more is cancelled.
///
/// The first touch of memory costs about as much as to fill it. So what was used up gives its memory to the next piece,
/// once there is a quarter of `keep_bytes`, or 16 MiB, of that. (Huge pages cost more on virtual machines whose host
/// takes free memory back: that is what it takes first.)
class BlockTier {
 public:
  static constexpr uint64_t kBlock = uint64_t{1} << 20;

  using TimePoint = std::chrono::steady_clock::time_point;
  using Clock = std::function<TimePoint()>;

  /// Both must outlive it, and requests in flight, which the store waits for. `clock` tells how long requests take.
  BlockTier(ObjectStore& store, MemoryBudget& memory, uint64_t keep_bytes,
            Clock clock = std::chrono::steady_clock::now);
  /// All Holds and Versions must be gone.
  ~BlockTier();
  BlockTier(const BlockTier&) = delete;
  BlockTier& operator=(const BlockTier&) = delete;

  struct Piece;
  /// Keeps a piece in memory as long as it lives. Move-only.
  class Hold {
   public:
    Hold(BlockTier& tier, std::shared_ptr<Piece> piece) : tier_(&tier), piece_(std::move(piece)) {}
    Hold(Hold&& other) noexcept : tier_(other.tier_), piece_(std::move(other.piece_)) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold();

    /// Returns which bytes of the object it has, or will have.
    ByteRange range() const;
    /// Waits for the bytes, which are valid as long as it is held. Errors are those of the store, and of Patience; the
    /// next Fetch asks again.
    absl::StatusOr<ByteSpan> Wait(const Patience& patience) const;
    /// Returns true if its request has ended with an error.
    bool failed() const;
    /// Returns how long the request took, or nullopt before it has ended.
    std::optional<std::chrono::nanoseconds> took() const;
    TimePoint asked_at() const;
    /// Returns true if it was requested before a reader waited for it (Need::kAhead).
    bool asked_ahead() const;
    /// A read uses this block, which is one of it. Returns true for the first one.
    bool Use(uint64_t number) const;
    /// A program has read all of it on its way through the file, so the kernel has it, and it is hardly read here
    /// again. Its memory is still in the caches of the CPU, so it may be the first to be reused.
    void UseUp() const;

   private:
    BlockTier* tier_;
    std::shared_ptr<Piece> piece_;
  };

  /// Tells why something is fetched: because a program waits for it, or ahead of that. Blocks that are fetched ahead
  /// leave a quarter of the budget free, and blocks that a program waits for leave a sixteenth. So a program always
  /// finds room for the few bytes that it reads.
  enum class Need { kNow, kAhead };

  struct Object;
  /// Names one version of an object, for a caller that asks for its blocks many times.
  class Version {
   public:
    Version(BlockTier& tier, const Node& node);
    Version(const Version&) = delete;
    Version& operator=(const Version&) = delete;
    ~Version();

    /// Returns the piece that has block `number`, there or in flight. If there is none, asks for one that begins with
    /// this block and has `most_blocks` at most: fewer if some are there, or if there is little room. Returns null if
    /// the budget has no room for one block.
    std::shared_ptr<Hold> Fetch(uint64_t number, uint64_t most_blocks = 1, Need need = Need::kNow) const;
    /// Returns the piece if it is there or in flight, else null.
    std::shared_ptr<Hold> Find(uint64_t number) const;
    /// Returns true if it is there or in flight.
    bool Has(uint64_t number) const;
    /// Takes bytes of `budget` for all of the object. All that hold them share one reservation. Returns null if there
    /// are too few.
    std::shared_ptr<Reservation> TakeRoom(MemoryBudget& budget) const;

   private:
    BlockTier* const tier_;
    Object* const object_;
  };

  /// These do the same as the functions of a Version of `node`.
  std::shared_ptr<Hold> Fetch(const Node& node, uint64_t number, uint64_t most_blocks = 1, Need need = Need::kNow);
  bool Has(const Node& node, uint64_t number);

  /// Gives memory back to the budget. Releases pieces that nobody holds, the least recently used one first, until
  /// `bytes` are free or no such piece is left. Returns how many bytes were freed.
  /// Waits for nothing. Takes the tier's mutex: the caller must hold no lock that a callback of this tier takes.
  uint64_t GiveBack(uint64_t bytes);

  uint64_t bytes() const;
  uint64_t keep_bytes() const { return keep_bytes_; }
  TimePoint now() const { return now_(); }

 private:
  /// Holds memory for a piece.
  struct Room {
    Reservation memory;
    Buffer bytes;
  };

  Object* Open(const Node& node);
  void Close(Object* object);
  void DropIfUnused(Object* object);
  std::shared_ptr<Piece> Find(Object& object, uint64_t number);
  std::shared_ptr<Hold> Use(const std::shared_ptr<Piece>& piece);
  std::shared_ptr<Piece> Make(Object& object, uint64_t number, uint64_t blocks, Need need);
  std::optional<Room> TakeRoom(uint64_t length, Need need);
  void Release(Piece& piece);
  std::optional<Room> HandOn(uint64_t room_bytes, bool only_used_up);
  std::optional<Room> Evict(uint64_t bytes, uint64_t room_bytes);
  void Erase(const std::shared_ptr<Piece>& piece);

  ObjectStore& store_;
  MemoryBudget& memory_;
  const uint64_t keep_bytes_;
  const uint64_t most_used_up_;  // before they give their memory to others
  const Clock now_;

  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<Object>> objects_;  // by version and key
  std::list<std::shared_ptr<Piece>> lru_;                             // the ones that were used last at the end
  uint64_t bytes_ = 0;
  uint64_t unheld_bytes_ = 0;   // of these, nobody holds so many
  uint64_t used_up_bytes_ = 0;  // and of these, so many are at the beginning of that list, since they were used up
};

}  // namespace millrace
