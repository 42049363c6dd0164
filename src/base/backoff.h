#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace millrace {

/// Returns how long to wait before a request is sent again after `failures` >= 1 attempts. It is exponential back-off
/// with full jitter, uniform in [0, min(20 s, 100 ms x 2^(failures - 1))). It is a function of `failures` and `key`
/// alone.
absl::Duration Backoff(int failures, uint64_t key);

}  // namespace millrace
