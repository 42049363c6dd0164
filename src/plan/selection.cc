#include "plan/selection.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <utility>

#include "base/crypto.h"

namespace millrace {
namespace {

constexpr uint64_t kListed = 4096;  // more members take less room as a bitmap
constexpr uint64_t kWords = Selection::kChunk / 64;
constexpr uint64_t kBlockWords = 8;
constexpr uint64_t kBlocks = kWords / kBlockWords;
constexpr uint64_t kCountWords = kBlocks * sizeof(uint16_t) / sizeof(uint64_t);

constexpr uint64_t kEachByte = 0x0101010101010101;

/// Byte i of the result says how many bits are set in bytes 0 .. i. It does without the instruction for it, which the
/// oldest machines lack.
inline uint64_t BitsUpToBytes(uint64_t word) {
  word = word - ((word >> 1) & 0x5555555555555555);
  word = (word & 0x3333333333333333) + ((word >> 2) & 0x3333333333333333);
  return ((word + (word >> 4)) & 0x0f0f0f0f0f0f0f0f) * kEachByte;
}

inline uint64_t CountBits(uint64_t word) {
  return BitsUpToBytes(word) >> 56;
}

/// Returns the place of set bit number `rank` of those of the word.
inline uint64_t SelectBit(uint64_t word, uint64_t rank) {
  const uint64_t up_to = BitsUpToBytes(word);
  // The top bit of byte i stays set where byte i of up_to is at most the rank; their number is the byte to look into.
  const uint64_t at_most = ((rank * kEachByte | (kEachByte << 7)) - up_to) & (kEachByte << 7);
  const uint64_t byte = ((at_most >> 7) * kEachByte) >> 56;
  rank -= (up_to << 8) >> (8 * byte) & 0xff;
  uint64_t bits = word >> (8 * byte);
  for (; rank > 0; --rank) bits &= bits - 1;
  return 8 * byte + static_cast<uint64_t>(std::countr_zero(bits));
}

inline uint64_t CountBefore(const uint64_t* counts, uint64_t block) {
  return counts[block / 4] >> (16 * (block % 4)) & 0xffff;
}

uint64_t SelectInBitmap(const uint64_t* counts, uint64_t members, uint64_t rank) {
  // Members are mostly spread evenly, so the guess is mostly right.
  uint64_t block = static_cast<uint32_t>(rank * kBlocks) / static_cast<uint32_t>(members);
  while (CountBefore(counts, block) > rank) --block;
  while (block + 1 < kBlocks && CountBefore(counts, block + 1) <= rank) ++block;
  rank -= CountBefore(counts, block);
  const uint64_t* word = counts + kCountWords + block * kBlockWords;
  for (uint64_t i = 0;; ++i) {
    const uint64_t bits = CountBits(word[i]);
    if (rank < bits) return (block * kBlockWords + i) * 64 + SelectBit(word[i], rank);
    rank -= bits;
  }
}

uint64_t RankInBitmap(const uint64_t* counts, uint64_t low) {
  const uint64_t block = low / 64 / kBlockWords;
  const uint64_t* bits = counts + kCountWords;
  uint64_t rank = CountBefore(counts, block);
  for (uint64_t word = block * kBlockWords; word < low / 64; ++word) rank += CountBits(bits[word]);
  return low % 64 == 0 ? rank : rank + CountBits(bits[low / 64] << (64 - low % 64));
}

uint64_t ChunksIn(uint64_t universe) {
  return universe / Selection::kChunk + (universe % Selection::kChunk != 0 ? 1 : 0);
}

}  // namespace

/// Returns whether a list takes no more than chunks may, which need their numbers and a hint, and at most 2 bytes a
/// member.
bool Selection::IsFew(uint64_t universe, uint64_t members) {
  constexpr uint64_t kChunkBytes = sizeof(Chunk) + sizeof(uint32_t);
  return members <= ChunksIn(universe) * kChunkBytes / (NumberList::WidthFor(universe) - sizeof(uint16_t));
}

Selection Selection::Of(uint64_t universe, NumberList members) {
  if (!IsFew(universe, members.size())) {
    Builder builder(universe);
    for (size_t i = 0; i < members.size(); ++i) builder.Add(members[i]);
    return std::move(builder).Finish();
  }
  Selection made;
  made.universe_ = universe;
  made.size_ = members.size();
  made.list_ = std::move(members);
  made.fingerprint_ = made.HashOfList();
  return made;
}

uint64_t Selection::WidthOf(size_t chunk) const {
  return std::min(kChunk, universe_ - chunk * kChunk);
}

size_t Selection::ChunkOfRank(uint64_t rank) const {
  const uint64_t hint = rank >> hint_shift_;
  size_t chunk = hints_[hint];
  // If members are spread evenly, it is this chunk or one of the next.
  for (int near = 0; near < 3; ++near, ++chunk) {
    if (chunks_[chunk + 1].before > rank) return chunk;
  }
  const auto begin = chunks_.begin() + static_cast<std::ptrdiff_t>(chunk) + 1;
  const auto end = hint + 1 < hints_.size() ? chunks_.begin() + hints_[hint + 1] + 1 : chunks_.end();
  const auto after =
      std::upper_bound(begin, end, rank, [](uint64_t value, const Chunk& c) { return value < c.before; });
  return static_cast<size_t>(after - chunks_.begin()) - 1;
}

uint64_t Selection::At(uint64_t rank) const {
  if (is_list()) return list_[rank];
  const size_t chunk = ChunkOfRank(rank);
  const uint64_t members = MembersOf(chunk);
  const uint64_t offset = chunks_[chunk].offset;
  rank -= chunks_[chunk].before;
  if (members == WidthOf(chunk)) return chunk * kChunk + rank;
  if (members <= kListed) return chunk * kChunk + lists_[offset + rank];
  return chunk * kChunk + SelectInBitmap(words_.data() + offset, members, rank);
}

void Selection::Prefetch(uint64_t rank) const {
  if (is_list()) {
    list_.Prefetch(rank);
    return;
  }
  const size_t chunk = ChunkOfRank(rank);
  const uint64_t members = MembersOf(chunk);
  const uint64_t offset = chunks_[chunk].offset;
  rank -= chunks_[chunk].before;
  if (members == WidthOf(chunk)) return;
  if (members <= kListed) {
    __builtin_prefetch(lists_.data() + offset + rank);
    return;
  }
  // Members are mostly spread evenly: what is looked for is in the block that they let expect, or beside it.
  const uint64_t block = rank * kBlocks / members;
  const uint64_t* const counts = words_.data() + offset;
  __builtin_prefetch(counts + block / 4);
  const uint64_t* const bits = counts + kCountWords;
  __builtin_prefetch(bits + (block > 0 ? block - 1 : 0) * kBlockWords);
  __builtin_prefetch(bits + block * kBlockWords);
  __builtin_prefetch(bits + std::min(block + 1, kBlocks - 1) * kBlockWords);
}

void Selection::Read(uint64_t first, std::span<uint64_t> out) const {
  if (is_list()) {
    for (uint64_t& number : out) number = list_[first++];
    return;
  }
  for (size_t chunk = out.empty() ? 0 : ChunkOfRank(first); !out.empty(); ++chunk) {
    const uint64_t members = MembersOf(chunk);
    const uint64_t rank = first - chunks_[chunk].before;
    const size_t count = std::min<uint64_t>(members - rank, out.size());
    ReadInChunk(chunk, rank, out.first(count));
    out = out.subspan(count);
    first += count;
  }
}

void Selection::ReadInChunk(size_t chunk, uint64_t rank, std::span<uint64_t> out) const {
  const uint64_t base = chunk * kChunk;
  const uint64_t offset = chunks_[chunk].offset;
  const uint64_t members = MembersOf(chunk);
  if (out.empty()) return;
  if (members == WidthOf(chunk)) {
    for (uint64_t& number : out) number = base + rank++;
  } else if (members <= kListed) {
    for (uint64_t& number : out) number = base + lists_[offset + rank++];
  } else {
    const uint64_t low = SelectInBitmap(words_.data() + offset, members, rank);
    const uint64_t* word = words_.data() + offset + kCountWords + low / 64;
    uint64_t before = base + low / 64 * 64;
    uint64_t bits = *word & (UINT64_MAX << (low % 64));
    for (uint64_t& number : out) {
      while (bits == 0) {
        bits = *++word;
        before += 64;
      }
      number = before + static_cast<uint64_t>(std::countr_zero(bits));
      bits &= bits - 1;
    }
  }
}

uint64_t Selection::RankOf(uint64_t number) const {
  if (number >= universe_) return size();
  if (is_list()) return list_.CountBelow(number);
  const size_t chunk = number / kChunk;
  const uint64_t low = number % kChunk;
  const uint64_t members = MembersOf(chunk);
  const auto& [before, offset] = chunks_[chunk];
  if (members == 0) return before;
  if (members == WidthOf(chunk)) return before + low;
  if (members > kListed) return before + RankInBitmap(words_.data() + offset, low);
  const uint16_t* list = lists_.data() + offset;
  return before + static_cast<uint64_t>(std::lower_bound(list, list + members, low) - list);
}

bool Selection::Contains(uint64_t number) const {
  const uint64_t rank = RankOf(number);
  return rank < size() && At(rank) == number;
}

NumberList Selection::ToList() const {
  NumberList list(universe_, size_);
  std::array<uint64_t, 64> block;
  for (uint64_t rank = 0; rank < size_; rank += block.size()) {
    const auto numbers = std::span(block).first(std::min<uint64_t>(block.size(), size_ - rank));
    Read(rank, numbers);
    for (size_t i = 0; i < numbers.size(); ++i) list.Set(rank + i, numbers[i]);
  }
  return list;
}

uint64_t Selection::memory_bytes() const {
  return list_.memory_bytes() + chunks_.size() * sizeof(Chunk) + lists_.size() * sizeof(uint16_t) +
         words_.size() * sizeof(uint64_t) + hints_.size() * sizeof(uint32_t);
}

/// There are about as many hints as chunks, so that a rank is close to one.
void Selection::Index() {
  const uint64_t per_chunk = size() / chunks_.size();
  hint_shift_ = per_chunk == 0 ? 0 : static_cast<unsigned>(std::bit_width(per_chunk)) - 1;
  hints_.reserve((size() >> hint_shift_) + 1);
  size_t chunk = 0;
  for (uint64_t rank = 0; rank < size(); rank += uint64_t{1} << hint_shift_) {
    while (chunks_[chunk + 1].before <= rank) ++chunk;
    hints_.push_back(static_cast<uint32_t>(chunk));
  }
}

/// There is one way to store a chunk of given members, so that the bytes of chunks stand for them.
uint64_t Selection::HashOfChunks() const {
  Xxh3Stream hash;
  hash.UpdateLe64(universe_);
  for (size_t chunk = 0; chunk + 1 < chunks_.size(); ++chunk) {
    const uint64_t members = MembersOf(chunk);
    hash.UpdateLe64(members);
    if (members == 0 || members == WidthOf(chunk)) continue;
    const bool listed = members <= kListed;
    hash.Update(listed ? std::as_bytes(std::span(lists_).subspan(chunks_[chunk].offset, members))
                       : std::as_bytes(std::span(words_).subspan(chunks_[chunk].offset + kCountWords, kWords)));
  }
  return hash.Digest().low;
}

/// Returns the same hash as the chunks that the list's members would be stored in. Nearly all of them are empty.
uint64_t Selection::HashOfList() const {
  Xxh3Stream hash;
  hash.UpdateLe64(universe_);
  const uint64_t chunks = ChunksIn(universe_);
  uint64_t chunk = 0;  // that is next
  const auto skip_to = [&](uint64_t next) {
    static constexpr std::array<uint64_t, 128> kNone{};
    for (uint64_t empty = 0; chunk < next; chunk += empty) {
      empty = std::min<uint64_t>(next - chunk, kNone.size());
      hash.Update(std::as_bytes(std::span(kNone).first(empty)));
    }
  };
  std::vector<uint16_t> lows;
  for (size_t i = 0; i < list_.size();) {
    skip_to(list_[i] / kChunk);
    lows.clear();
    for (; i < list_.size() && list_[i] / kChunk == chunk; ++i)
      lows.push_back(static_cast<uint16_t>(list_[i] % kChunk));
    hash.UpdateLe64(lows.size());
    if (lows.size() < WidthOf(chunk)) {
      if (lows.size() <= kListed) {
        hash.Update(std::as_bytes(std::span(lows)));
      } else {
        std::vector<uint64_t> bits(kWords);
        for (const uint16_t low : lows) bits[low / 64] |= uint64_t{1} << (low % 64);
        hash.Update(std::as_bytes(std::span(bits)));
      }
    }
    ++chunk;
  }
  skip_to(chunks);
  return hash.Digest().low;
}

Selection::Builder::Builder(uint64_t universe, uint64_t first) : first_chunk_(first / kChunk), chunk_(first_chunk_) {
  made_.universe_ = universe;
}

void Selection::Builder::Add(uint64_t number) {
  if (number / kChunk != chunk_) CloseChunksUpTo(number / kChunk);
  members_.push_back(static_cast<uint16_t>(number % kChunk));
}

void Selection::Builder::CloseChunksUpTo(uint64_t chunk) {
  while (chunk_ < chunk) CloseChunk();
}

void Selection::Builder::CloseChunk() {
  Selection& made = made_;
  const uint64_t before = made.chunks_.empty() ? 0 : made.chunks_.back().before;
  if (made.chunks_.empty()) made.chunks_.emplace_back();
  const uint64_t members = members_.size();
  const bool listed = members <= kListed;
  made.chunks_.back().offset = listed ? made.lists_.size() : made.words_.size();
  if (members == 0 || members == made.WidthOf(chunk_)) {
    made.chunks_.back().offset = 0;
  } else if (listed) {
    made.lists_.insert(made.lists_.end(), members_.begin(), members_.end());
  } else {
    const size_t counts = made.words_.size();
    made.words_.resize(counts + kCountWords + kWords);
    uint64_t* const bits = made.words_.data() + counts + kCountWords;
    for (const uint16_t low : members_) bits[low / 64] |= uint64_t{1} << (low % 64);
    uint64_t count = 0;
    for (uint64_t word = 0; word < kWords; ++word) {
      const uint64_t block = word / kBlockWords;
      if (word % kBlockWords == 0) made.words_[counts + block / 4] |= count << (16 * (block % 4));
      count += CountBits(bits[word]);
    }
  }
  made.chunks_.push_back({before + members, 0});
  members_.clear();
  ++chunk_;
}

void Selection::Builder::Append(Builder next) {
  CloseChunksUpTo(next.first_chunk_);
  next.CloseChunksUpTo(next.chunk_ + (next.members_.empty() ? 0 : 1));
  Selection& made = made_;
  const uint64_t before = made.chunks_.empty() ? 0 : made.chunks_.back().before;
  if (!made.chunks_.empty() && !next.made_.chunks_.empty()) made.chunks_.pop_back();
  for (size_t i = 0; i < next.made_.chunks_.size(); ++i) {
    Chunk chunk = next.made_.chunks_[i];
    if (i + 1 < next.made_.chunks_.size()) {
      const uint64_t members = next.made_.chunks_[i + 1].before - chunk.before;
      chunk.offset += members <= kListed ? made.lists_.size() : made.words_.size();
    }
    chunk.before += before;
    made.chunks_.push_back(chunk);
  }
  made.lists_.insert(made.lists_.end(), next.made_.lists_.begin(), next.made_.lists_.end());
  made.words_.insert(made.words_.end(), next.made_.words_.begin(), next.made_.words_.end());
  chunk_ = next.chunk_;
}

Selection Selection::Builder::Finish() && {
  Selection& made = made_;
  CloseChunksUpTo(ChunksIn(made.universe_));
  if (made.chunks_.empty()) made.chunks_.emplace_back();
  made.size_ = made.chunks_.back().before;
  made.Index();
  if (IsFew(made.universe_, made.size_)) return Of(made.universe_, made.ToList());
  made.chunks_.shrink_to_fit();
  made.lists_.shrink_to_fit();
  made.words_.shrink_to_fit();
  made.fingerprint_ = made.HashOfChunks();
  return std::move(made);
}

}  // namespace millrace
