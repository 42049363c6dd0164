#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/number_list.h"

namespace millrace {

/// Holds some of the numbers 0 .. universe-1, in ascending order. `At` numbers the members, `RankOf` is its inverse.
/// Both take constant time, except a RankOf of few members, which takes O(log members). Immutable and thread-safe.
///
///   Selection::Builder builder(/*universe=*/100);
///   for (const uint64_t number : {3, 7, 50}) builder.Add(number);
///   const Selection chosen = std::move(builder).Finish();
///   chosen.At(1);       // 7
///   chosen.RankOf(50);  // 2
///
/// The memory depends on the number of members. Up to 10 members for each 65,536 numbers take 4 bytes each (beyond 2^32
/// numbers, half as many take 6 bytes each). More members take 20 bytes for each 65,536 numbers. In addition, a stretch
/// of these with up to 4,096 members takes 2 bytes a member; one with more takes a bit and a thirtieth for each number.
/// Stretches of which all or none are members take no more.
class Selection {
 public:
  static constexpr uint64_t kChunk = 65536;

  /// Takes the members in ascending order.
  class Builder;
  /// Makes the selection of a list, which has been set and ascends.
  static Selection Of(uint64_t universe, NumberList members);

  uint64_t universe() const { return universe_; }
  uint64_t size() const { return size_; }
  uint64_t At(uint64_t rank) const;  // rank < size()
  /// Reads At of ranks `first`, `first + 1` ..., many times faster than one by one. first + out.size() <= size().
  void Read(uint64_t first, std::span<uint64_t> out) const;
  /// Starts loading what Read from this rank will look into, without waiting for it. rank < size().
  void Prefetch(uint64_t rank) const;
  /// Returns how many members are smaller than `number`, which is at most universe(). The result for a member is its
  /// rank, At(it) == number.
  uint64_t RankOf(uint64_t number) const;
  bool Contains(uint64_t number) const;  // number < universe()

  /// Returns a fingerprint of universe and members, equal on all machines.
  uint64_t fingerprint() const { return fingerprint_; }
  uint64_t memory_bytes() const;

 private:
  // Few members are a list of their own, and there are no chunks. Otherwise a chunk of up to kListed members is a list
  // of their low halves. A chunk with more is a bitmap, preceded by the counts before each of its blocks. One without
  // gaps or members is nothing. The chunk after it says how many there are.
  struct Chunk {
    uint64_t before = 0;  // members in the chunks before it
    uint64_t offset = 0;  // of its list in lists_, or of its counts and bits in words_
  };

  Selection() = default;
  static bool IsFew(uint64_t universe, uint64_t members);
  bool is_list() const { return chunks_.empty(); }
  uint64_t MembersOf(size_t chunk) const { return chunks_[chunk + 1].before - chunks_[chunk].before; }
  uint64_t WidthOf(size_t chunk) const;
  size_t ChunkOfRank(uint64_t rank) const;
  void ReadInChunk(size_t chunk, uint64_t rank, std::span<uint64_t> out) const;
  void Index();
  NumberList ToList() const;
  uint64_t HashOfList() const;
  uint64_t HashOfChunks() const;

  uint64_t universe_ = 0;
  uint64_t size_ = 0;
  NumberList list_;
  std::vector<Chunk> chunks_;  // and one more, with the number of all members; none where there is a list
  std::vector<uint16_t> lists_;
  std::vector<uint64_t> words_;
  unsigned hint_shift_ = 0;
  std::vector<uint32_t> hints_;  // the chunk of member i << hint_shift_
  uint64_t fingerprint_ = 0;
};

class Selection::Builder {
 public:
  /// Builds from members of `first` .. universe-1; first is a multiple of kChunk. universe <= 2^48.
  explicit Builder(uint64_t universe, uint64_t first = 0);

  void Add(uint64_t number);  // larger than all before, within the bounds
  /// Continues with the members of `next`, which all are larger, at least by being of later chunks.
  void Append(Builder next);
  Selection Finish() &&;

 private:
  void CloseChunk();
  void CloseChunksUpTo(uint64_t chunk);

  uint64_t first_chunk_;
  uint64_t chunk_;                 // that is being filled
  std::vector<uint16_t> members_;  // of it
  Selection made_;                 // chunks from first_chunk_ on
};

}  // namespace millrace
