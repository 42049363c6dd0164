#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>

/// Progress and end of work that takes long:
///
///   WarmCache(source, options, {.progress = [&](uint64_t done, uint64_t total) { ... }, .stop = interrupt.token()});

namespace millrace {

/// Progress of long work: bytes or items done of a total (0 = not known yet). Called from any thread, at most ten
/// times a second, and at the end.
using ProgressFn = std::function<void(uint64_t done, uint64_t total)>;

struct LongTask {
  ProgressFn progress;   // may be empty
  std::stop_token stop;  // if it is requested, the work ends soon with Cancelled
};

/// Sleeps. Returns false, at once, if a stop is requested.
bool SleepUnlessStopped(std::chrono::duration<double> time, const std::stop_token& stop);

}  // namespace millrace
