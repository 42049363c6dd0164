#include "base/backoff.h"

#include <algorithm>

#include "base/rng.h"

namespace millrace {

namespace {

constexpr absl::Duration kBackoffBase = absl::Milliseconds(100);
constexpr absl::Duration kBackoffCap = absl::Seconds(20);

}  // namespace

absl::Duration Backoff(int failures, uint64_t key) {
  const int doublings = std::clamp(failures - 1, 0, 20);
  const absl::Duration limit = std::min(kBackoffCap, kBackoffBase * (int64_t{1} << doublings));
  return limit * Rng(key).Unit();
}

}  // namespace millrace
