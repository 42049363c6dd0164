#pragma once

#include <cstdint>
#include <initializer_list>

/// Randomness is keyed and stateless. Every random choice of Millrace is a function of its purpose (a domain and
/// numbers such as seed, epoch, sample). It never depends on a thread or the time, so that runs can be repeated.
///
///   Rng rng(HashKey(kFlipDomain, {seed, epoch, sample}));
///   const bool flips = rng.Unit() < 0.5;

namespace millrace {

/// This is the finaliser of SplitMix64: a bijection of 64 bits that mixes well.
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Returns a 64-bit key from a domain and its numbers. Different domains or numbers give unrelated keys.
constexpr uint64_t HashKey(uint64_t domain, std::initializer_list<uint64_t> parts) {
  uint64_t state = Mix64(domain);
  for (const uint64_t part : parts) state = Mix64(state ^ Mix64(part + 0x2545f4914f6cdd1du));
  return state;
}

/// Generates a sequence of random numbers, seeded by a key (SplitMix64). Not thread-safe; make one where it is used.
class Rng {
 public:
  explicit constexpr Rng(uint64_t key) : state_(key) {}

  constexpr uint64_t Next() { return Mix64(state_ += 0x9e3779b97f4a7c15u); }

  /// Returns a number uniform in [0, n), without bias worth measuring (multiply-shift on 64 bits). n > 0.
  constexpr uint64_t Below(uint64_t n) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * n) >> 64);
  }

  /// Returns a number uniform in [0, 1), 53 bits.
  constexpr double Unit() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t state_;
};

}  // namespace millrace
