#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace millrace {

/// Decides how much more than its bytes is fetched around a read at random, for one open file. Pure.
///
/// A request takes its time, however little it asks for, so it pays to ask for more if the program reads that later.
/// That shows only afterwards. So surplus is bought as skis are, in place of being rented: once the requests
/// have cost as much as it would. Its credit is counted in bytes:
///
/// - A read of which the store was asked earns its own size: at most twice the bytes that the program wants are
///   fetched.
/// - In a file that is kept whole, the reads after the first kFirstReads earn what could have been transferred while
///   the program waited for them, until as much was fetched as the file has: with surplus that is never used, reading
///   takes at most about twice as long. (Requests that are answered within kQuick cost too little.)
/// - The first read that finds its bytes in a block of the surplus earns twice what could have been transferred while
///   it would have waited, and kProvenBytes at most. So where surplus is used, more is fetched at a time, and where it
///   is not used any more, that ends; and a block that is read over and over speaks for itself only.
class ReadSurplus {
 public:
  using Time = std::chrono::nanoseconds;

  static constexpr uint64_t kBlockBytes = uint64_t{1} << 20;
  static constexpr uint64_t kMaxPieceBytes = uint64_t{8} << 20;
  static constexpr uint64_t kMaxCredit = uint64_t{128} << 20;
  static constexpr uint64_t kProvenBytes = uint64_t{4} << 20;
  static constexpr uint64_t kFirstReads = 4;
  static constexpr Time kQuick = std::chrono::milliseconds(2);

  /// `kept_bytes`: how much surplus, of all files, is kept until it is used.
  ReadSurplus(uint64_t file_bytes, uint64_t kept_bytes) : file_bytes_(file_bytes), kept_bytes_(kept_bytes) {}

  /// WantsRoom returns true if it would be of use now to have room for all of the file among the kept bytes. OnRoom
  /// says that there is such room.
  bool WantsRoom() const { return !is_kept_ && misses_ >= kFirstReads && file_bytes_ <= kept_bytes_; }
  void OnRoom() { is_kept_ = true; }
  bool is_kept() const { return is_kept_; }

  /// The store has answered a read of so many bytes. `waited`: the time that the program lost by it.
  void OnMiss(uint64_t bytes, Time waited);
  /// A read has found its bytes among the surplus, in a block where none had found any before.
  void OnHit();

  /// Returns how much is to be fetched now around a read that asks the store: a power of two of blocks, aligned to its
  /// size, or 0 for none.
  uint64_t Piece() const;
  /// So much is asked for.
  void OnFetch(uint64_t bytes);
  /// Returns true if a piece that was requested so long ago is here sooner than one that a read requests now.
  bool ComesSooner(Time age) const;
  /// It took so long, with so many pieces in flight at a time.
  void OnArrival(uint64_t bytes, Time took, uint64_t together);

 private:
  void Earn(uint64_t bytes);

  const uint64_t file_bytes_;
  const uint64_t kept_bytes_;
  bool is_kept_ = false;
  uint64_t credit_ = 0;
  uint64_t misses_ = 0;
  uint64_t fetched_ = 0;
  uint64_t worth_ = 0;                            // what could be transferred while the program waits for the store
  uint64_t bytes_per_second_ = kBlockBytes * 64;  // until it is known
  std::optional<Time> least_wait_;
  std::optional<Time> took_;  // a piece, lately
};

}  // namespace millrace
