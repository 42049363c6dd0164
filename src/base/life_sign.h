#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

/// Signs of life of a job that Millrace itself gives: it moves bytes for it, or waits for a store that it knows to be
/// away. `millrace run --hang-after` counts them like output and heartbeats (docs/run.md lists what counts). Any
/// thread.

namespace millrace {

/// Gives a sign, a few times a second at most; else it costs a look at the clock. The sign changes the time of the file
/// that MILLRACE_HEARTBEAT names, and is seen by LastLife of all processes that were forked from one another.
void ShowLife();

/// Bytes of objects were moved. A sign if they are more than the small messages by which processes keep in touch (16
/// KiB within ten seconds): those do not show that a program works.
void MovedBytes(uint64_t bytes);

/// When the last sign was given by this process, by one that it was forked from, or by one that was forked from these.
std::optional<std::chrono::steady_clock::time_point> LastLife();

/// Changes the time of the file that MILLRACE_HEARTBEAT names in another process, for which bytes were moved; at most
/// once in half a second. Only a file of the process's own user is touched. Nothing happens if the program has no such
/// file.
void ShowLifeOf(int process);

}  // namespace millrace
