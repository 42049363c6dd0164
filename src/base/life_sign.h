#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

/// Signs of life of a job that Millrace itself gives: it moves bytes for it, or waits for a store that it knows to be
/// away. `millrace run --hang-after` counts them like output and heartbeats (docs/run.md lists what counts). Any
/// thread.

namespace millrace {

constexpr const char* kHeartbeatVariable = "MILLRACE_HEARTBEAT";

/// Gives a sign, a few times a second at most; else it costs a look at the clock. The sign changes the time of the file
/// that MILLRACE_HEARTBEAT named when the program began, and is seen by LastLife of all processes that were forked from
/// one another. It may wait for the file system of this file: call it without locks.
void ShowLife();

/// Has this process change the time of another file; of none if `path` is empty. One thread at a time.
void SetHeartbeatFile(const std::string& path);

/// The caller has moved bytes of objects. That is a sign if they are more than the small messages by which processes
/// keep in touch (16 KiB within ten seconds): those do not show that a program works.
void MovedBytes(uint64_t bytes);

/// Returns when the last sign was given by this process, by one that it was forked from, or by one that was forked from
/// these.
std::optional<std::chrono::steady_clock::time_point> LastLife();

}  // namespace millrace
