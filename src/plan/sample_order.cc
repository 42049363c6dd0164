#include "plan/sample_order.h"

#include "base/rng.h"

namespace millrace {

SampleOrder SampleOrder::Shuffled(uint64_t samples, uint64_t seed) {
  constexpr uint64_t kShuffleDomain = 0x7061636b;  // "pack"
  SampleOrder order(samples);
  order.permutation_.emplace(samples, HashKey(kShuffleDomain, {seed}));
  return order;
}

SampleOrder SampleOrder::Spread(uint64_t samples, uint64_t count) {
  SampleOrder order(samples);
  order.size_ = count;
  return order;
}

// Returns the sample in the middle of each of `size_` equal parts.
uint64_t SampleOrder::SpreadAt(uint64_t position) const {
  const auto twice = static_cast<unsigned __int128>(2 * position + 1) * samples_;
  return static_cast<uint64_t>(twice / (2 * size_));
}

}  // namespace millrace
