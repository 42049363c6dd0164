#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "plan/plan.h"

namespace millrace {

inline OrderPolicy Windowed(uint64_t extent, uint64_t window, uint64_t lanes) {
  return {.shuffle = Shuffle::kWindow, .extent = extent, .window = window, .lanes = lanes};
}

inline std::string Describe(uint64_t samples, const OrderPolicy& policy) {
  return fmt::format("n={} {} b={} K={} L={}", samples, ShuffleName(policy.shuffle), policy.extent, policy.window,
                     policy.lanes);
}

/// Returns policies whose windows are of every kind for sizes up to a few thousand.
inline std::vector<OrderPolicy> Policies() {
  return {{.shuffle = Shuffle::kNone},
          {.shuffle = Shuffle::kGlobal},
          Windowed(1, 1, 1),
          Windowed(1, 64, 64),
          Windowed(3, 8, 4),
          Windowed(13, 12, 4),
          Windowed(16, 192, 64),
          Windowed(300, 4, 2),
          Windowed(7, 5, 1)};
}

}  // namespace millrace
