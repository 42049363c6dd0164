#include "plan/permutation.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "base/rng.h"

namespace millrace {
namespace {

/// Returns the place in 0 .. i that element i of a Fisher-Yates shuffle is exchanged with. It is counter-based, so that
/// any step can be asked for. 32 bits are plenty: for i < 256 the bias is below 2^-24.
inline uint64_t ExchangeOf(uint64_t key, uint64_t i) {
  const uint64_t pair = Mix64(key + (i >> 1));
  const uint64_t half = (i & 1) != 0 ? pair >> 32 : pair & 0xffffffffu;
  return (half * (i + 1)) >> 32;
}

/// The round function of the Feistel network is uniform in 0 .. radix-1. Two multiplications with a shift between them
/// are enough for every bit of a small `value` to reach the high bits, which decide the result. With 8 rounds no test
/// distinguishes it from Mix64, and it is a third faster.
inline uint64_t Round(uint64_t key, uint64_t value, uint64_t radix) {
  uint64_t x = (key ^ value) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
  return static_cast<uint64_t>((static_cast<unsigned __int128>(x) * radix) >> 64);
}

inline uint64_t AddModulo(uint64_t a, uint64_t b, uint64_t radix) {
  const uint64_t sum = a + b;
  return sum >= radix ? sum - radix : sum;
}

inline uint64_t SubtractModulo(uint64_t a, uint64_t b, uint64_t radix) {
  return a >= b ? a - b : a + radix - b;
}

uint64_t CeilSqrt(uint64_t n) {
  auto root = static_cast<uint64_t>(std::sqrt(static_cast<double>(n)));
  while (root * root > n) --root;  // the double may be off either way
  while (root * root < n) ++root;
  return root;
}

}  // namespace

Permutation::Permutation(uint64_t n, uint64_t key) : n_(n), key_(Mix64(key)) {
  if (small()) return;
  left_radix_ = CeilSqrt(n);
  right_radix_ = Divider((n + left_radix_ - 1) / left_radix_);
  for (int round = 0; round < kRounds; ++round) keys_[round] = HashKey(key_, {static_cast<uint64_t>(round)});
}

uint64_t Permutation::Forward(uint64_t value) const {
  const uint64_t a = left_radix_;
  const uint64_t b = right_radix_.divisor();
  auto [left, right] = right_radix_.Divide(value);
  for (int round = 0; round < kRounds; round += 2) {
    left = AddModulo(left, Round(keys_[round], right, a), a);
    right = AddModulo(right, Round(keys_[round + 1], left, b), b);
  }
  return left * b + right;
}

uint64_t Permutation::Backward(uint64_t value) const {
  const uint64_t a = left_radix_;
  const uint64_t b = right_radix_.divisor();
  auto [left, right] = right_radix_.Divide(value);
  for (int round = kRounds; round > 0; round -= 2) {
    right = SubtractModulo(right, Round(keys_[round - 1], left, b), b);
    left = SubtractModulo(left, Round(keys_[round - 2], right, a), a);
  }
  return left * b + right;
}

uint64_t Permutation::At(uint64_t index) const {
  if (!small()) {
    do {
      index = Forward(index);
    } while (index >= n_);
    return index;
  }
  // Step i of the shuffle (n-1 down to 0) exchanges i with a place at or below it. It is undone from step `index`
  // upwards: earlier steps do not reach `index`, and its element came from further up whenever a later i had been
  // exchanged with it.
  uint64_t from = ExchangeOf(key_, index);
  for (uint64_t i = index + 1; i < n_; ++i) from = ExchangeOf(key_, i) == from ? i : from;
  return from;
}

uint64_t Permutation::IndexOf(uint64_t value) const {
  if (!small()) {
    do {
      value = Backward(value);
    } while (value >= n_);
    return value;
  }
  // The element stays at `value` until some step takes it up to i, where it remains, or step `value` moves it down.
  uint64_t at = value;
  for (uint64_t i = n_; i-- > 0;) {
    const uint64_t with = ExchangeOf(key_, i);
    if (with == at) return i;
    if (i == at) at = with;
  }
  return at;
}

/// `permutation_of(i)` returns the large permutation of index i.
template <typename PermutationOf>
void Permutation::MapLarge(std::span<uint64_t> indices, PermutationOf permutation_of) {
  // The network is one long chain of dependent operations; four elements abreast keep the processor busy.
  constexpr size_t kAbreast = 4;
  size_t done = 0;
  for (; done + kAbreast <= indices.size(); done += kAbreast) {
    std::array<const Permutation*, kAbreast> by;
    std::array<Divider::Result, kAbreast> halves;
    for (size_t j = 0; j < kAbreast; ++j) {
      by[j] = &permutation_of(done + j);
      halves[j] = by[j]->right_radix_.Divide(indices[done + j]);
    }
    for (int round = 0; round < kRounds; round += 2) {
      for (size_t j = 0; j < kAbreast; ++j) {
        const uint64_t a = by[j]->left_radix_;
        halves[j].quotient = AddModulo(halves[j].quotient, Round(by[j]->keys_[round], halves[j].remainder, a), a);
      }
      for (size_t j = 0; j < kAbreast; ++j) {
        const uint64_t b = by[j]->right_radix_.divisor();
        halves[j].remainder = AddModulo(halves[j].remainder, Round(by[j]->keys_[round + 1], halves[j].quotient, b), b);
      }
    }
    for (size_t j = 0; j < kAbreast; ++j) {
      const uint64_t value = halves[j].quotient * by[j]->right_radix_.divisor() + halves[j].remainder;
      indices[done + j] = value < by[j]->n_ ? value : by[j]->At(value);  // At continues the cycle walk
    }
  }
  for (; done < indices.size(); ++done) indices[done] = permutation_of(done).At(indices[done]);
}

void Permutation::Map(std::span<uint64_t> indices) const {
  if (small()) {
    for (uint64_t& index : indices) index = At(index);
  } else {
    MapLarge(indices, [this](size_t) -> const Permutation& { return *this; });
  }
}

void Permutation::MapEach(std::span<const Permutation* const> permutations, std::span<uint64_t> indices) {
  MapLarge(indices, [permutations](size_t i) -> const Permutation& { return *permutations[i]; });
}

void Permutation::FillTable(std::span<uint8_t> table) const {
  std::iota(table.begin(), table.end(), uint8_t{0});
  for (uint64_t i = table.size(); i-- > 1;) std::swap(table[i], table[ExchangeOf(key_, i)]);
}

}  // namespace millrace
