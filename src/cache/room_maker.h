#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/rng.h"
#include "cache/cache_file.h"
#include "cache/eviction.h"

namespace millrace {

/// Takes the name of a file of the cache, "3f/...", and how many records a slab has, those that are free too; 0 if the
/// file is no slab.
using CacheFileVisitor = absl::FunctionRef<void(const std::string& name, uint64_t slab_records)>;

/// Makes room in a cache: draws ranges at random from the files of all its users, keeps the best ones to
/// remove in mind, and removes as EvictionPolicy decides. It removes files with names of the cache, and ranges in them,
/// and nothing else from the disk. Thread-safe; blocking.
class RoomMaker {
 public:
  struct Hooks {
    /// Calls its argument for the names of all files, in no order.
    std::function<void(CacheFileVisitor)> list;
    /// Returns a file by its name; null if it cannot be opened.
    std::function<std::shared_ptr<CacheFile>(const std::string& name)> open;
    /// Returns the same, if it is open; else null.
    std::function<std::shared_ptr<CacheFile>(const std::string& name)> opened;
    /// Returns true if this process reads objects of that store.
    std::function<bool(const std::string& store)> knows;
    /// The file was unlinked.
    std::function<void(const std::string& name, const std::shared_ptr<CacheFile>& file)> forget;
    /// So many bytes of the disk are free again.
    std::function<void(uint64_t bytes)> give_back;
    /// Another process holds the lock of a file for too long: the cache takes nothing new any more.
    std::function<void(const absl::Status& status)> failed;
  };
  /// Slabs that are opened only to make room have so many ranges in memory: about 64 MB. If they have more, they are
  /// opened in turn, as EarnRecords has it.
  static constexpr size_t kMostForeignSpans = size_t{512} << 10;
  explicit RoomMaker(Hooks hooks, size_t most_foreign_spans = kMostForeignSpans);

  /// Describes a range that somebody wants to write.
  struct Incoming {
    std::string name;     // of its file
    uint64_t offset = 0;  // or its tag in a slab
    UseHints hints;
    /// Bytes of the place that it needs in a slab: there, free blocks of the disk are not enough. 0: it goes to a file
    /// of its own.
    uint64_t place_bytes = 0;
    /// Without a plan: it was asked for not long before, and did not get room or was removed.
    bool proven = false;
    /// Nothing is written: too much is there, and something must go.
    bool forced = false;
  };
  /// Removes ranges of `bytes` or more of the disk, of `cached_bytes` that are taken. False: what is there is needed
  /// more than the incoming range. Sets `incoming.proven`.
  bool MakeRoom(uint64_t bytes, Incoming& incoming, uint64_t cached_bytes, std::vector<JobClock> jobs);

  /// A file was made.
  void Made(const std::string& name, uint64_t slab_records);

 private:
  using Name = std::array<char, 32>;  // without the slash
  struct Candidate {
    std::string name;
    std::shared_ptr<CacheFile> file;
    ByteRange range;
    uint64_t key = 0;  // as Incoming::offset
    EvictionPolicy::Candidate of;
  };

  using Pool = std::vector<Candidate>;
  struct Seen {
    UseHints hints;
    uint64_t bytes = 0;
  };
  struct Slab {
    std::string name;
    uint64_t spans = 1;      // as far as is known
    uint64_t records = 1;    // at the last listing, free ones too: opening reads them
    std::vector<Seen> seen;  // of its ranges, for when it is closed
  };

  void AddName(const std::string& name, uint64_t slab_records);
  void ListFiles();
  void LookAtSlabs();
  void Draw(Pool* own, const std::string& own_slab);
  void DrawAny();
  void DrawInsteadOf(size_t closed);
  void DrawFrom(const std::string& name, bool* vanished, Pool& pool, Slab* slab = nullptr, bool counts = true);
  void See(const Seen& seen);
  void EarnRecords();
  Pool* PoolOf(const Incoming& incoming);
  size_t LeastWaste(const std::vector<const Candidate*>& all, size_t chosen, const Incoming& incoming) const;
  absl::StatusOr<uint64_t> Evict(const Candidate& candidate);
  std::optional<uint64_t> EvictChosen(Candidate chosen, EvictionPolicy::Choice::What what, const Incoming& incoming,
                                      Pool& pool);
  bool Admits(Incoming& incoming, uint64_t cached_bytes);
  void Remember(const std::string& name, uint64_t offset, const UseHints& hints);
  void Trim(Pool& pool) const;
  void DropClosed(const Pool* own);

  const Hooks hooks_;
  std::mutex mutex_;
  Rng rng_;
  EvictionPolicy policy_;
  std::vector<Name> names_;
  std::optional<int64_t> list_again_ms_;  // null: not listed yet
  std::vector<Slab> slabs_;               // drawn from by the number of their ranges
  size_t slab_looked_at_ = 0;             // the last one
  int opens_left_ = 0;                    // slabs that this draw may open
  const int64_t most_records_;
  int64_t records_left_ = 0;  // that opening slabs may read; less than 0: it has read more
  Pool pool_;
  std::map<std::string, Pool> of_slabs_;  // further ones, of each slab that something was to come to
  uint64_t draws_of_slabs_ = 0;
  bool draws_pinned_ = false;
  int rejected_ = 0;  // in a row, since candidates were drawn
  double drawn_bytes_ = 0;
  uint64_t drawn_ = 0;
  // Holds the ranges without a plan that had no room lately, or were removed.
  std::deque<uint64_t> turned_away_order_;
  absl::flat_hash_set<uint64_t> turned_away_;
};

/// Removes a file of the cache, if nobody has it open; returns the bytes of the disk that it took, or nullopt.
std::optional<uint64_t> UnlinkUnused(const std::string& path);

/// Calls `each` for all files of the cache in the folder, in no order.
void ForEachCacheFile(const std::string& folder, CacheFileVisitor each);

}  // namespace millrace
