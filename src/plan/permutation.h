#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "plan/divider.h"

namespace millrace {

/// Computes a pseudo-random permutation of 0 .. n-1, chosen by a 64-bit key, and its inverse. Both take O(1) memory and
/// no allocation, so that one can be made where it is needed. Immutable, trivially copyable.
///
/// Up to kSmall elements it is a Fisher-Yates shuffle, which reaches every order. At and IndexOf follow one element
/// through the exchanges (n/2 cheap steps on average); a caller that needs all of them uses the table. Above kSmall, it
/// is a Feistel network over a x b >= n with a = ceil(sqrt n), b = ceil(n / a). A result outside 0 .. n-1 goes through
/// the network again (cycle walking), which happens to fewer than one element in sqrt(n).
class Permutation {
 public:
  static constexpr uint64_t kSmall = 256;
  static constexpr uint64_t kMaxSize = uint64_t{1} << 60;

  /// It must be that n <= kMaxSize.
  Permutation(uint64_t n, uint64_t key);

  uint64_t size() const { return n_; }
  bool small() const { return n_ <= kSmall; }

  uint64_t At(uint64_t index) const;       // index < size()
  uint64_t IndexOf(uint64_t value) const;  // value < size(); At(IndexOf(value)) == value

  /// Replaces each index by At(index), several times faster than one by one when large. Indices < size().
  void Map(std::span<uint64_t> indices) const;

  /// Does the same with a permutation for each index, all of them large.
  static void MapEach(std::span<const Permutation* const> permutations, std::span<uint64_t> indices);

  /// Writes At() of all indices, in order. It is for small permutations; table.size() == size().
  void FillTable(std::span<uint8_t> table) const;

 private:
  static constexpr int kRounds = 8;

  template <typename PermutationOf>
  static void MapLarge(std::span<uint64_t> indices, PermutationOf permutation_of);
  uint64_t Forward(uint64_t value) const;
  uint64_t Backward(uint64_t value) const;

  uint64_t n_;
  uint64_t key_;                          // small: of the exchanges
  uint64_t left_radix_ = 0;               // large: a
  Divider right_radix_;                   // large: b
  std::array<uint64_t, kRounds> keys_{};  // large: of the rounds
};

}  // namespace millrace
