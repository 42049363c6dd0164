#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/status.h"

/// Measures the memory and a disk of this machine, and checks that they give back the bytes that were written.
/// Blocking.

namespace millrace {

struct MemorySpeed {
  double bytes_per_second = 0;  // of copies by all threads: bytes read and bytes written
  bool sound = true;            // what was copied was what came out
};

/// Copies within `bytes` of memory, by `threads` at once, for about `time`. ResourceExhausted if there is less memory.
absl::StatusOr<MemorySpeed> MeasureMemory(int threads, uint64_t bytes, std::chrono::milliseconds time);

struct DiskSpeed {
  uint64_t bytes = 0;                 // of the file that was written
  double write_bytes_per_second = 0;  // with its fsync
  double read_bytes_per_second = 0;   // after the kernel was asked to forget it; memory file systems keep it
  double sync_ms = 0;                 // the median of writes of 4 KiB that are made durable one by one
};

struct DiskSpace {
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;  // for this user
};
absl::StatusOr<DiskSpace> MeasureSpace(const std::string& folder);

/// Writes a file without a name in `folder`, `bytes` long unless the disk needs more than `time` for it, makes it
/// durable, reads it, and compares. DataLoss if the disk gives back other bytes; ResourceExhausted if it is full.
absl::StatusOr<DiskSpeed> MeasureDisk(const std::string& folder, uint64_t bytes, std::chrono::milliseconds time);

}  // namespace millrace
