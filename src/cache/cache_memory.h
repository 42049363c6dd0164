#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "base/unique_fd.h"

namespace millrace {

/// A file in memory (memfd), which is never executed. `name` shows in /proc only.
absl::StatusOr<UniqueFd> MakeMemoryFile(const char* name);

/// Memory for the bytes of a cache of one process, as a file without a name (memfd): the system frees it with the
/// process, however that ends. The bytes of each object have a stretch of their own, which takes memory only for what
/// is written there. Thread-safe.
class CacheMemory {
 public:
  static absl::StatusOr<std::shared_ptr<CacheMemory>> Make();
  /// Frees it, also if a fork of the process still has it open.
  ~CacheMemory();
  CacheMemory(const CacheMemory&) = delete;
  CacheMemory& operator=(const CacheMemory&) = delete;

  int fd() const { return fd_.get(); }
  /// Where a new stretch begins. Stretches are never given out again. InvalidArgument if there is none of that size.
  absl::StatusOr<uint64_t> NewStretch(uint64_t bytes);

 private:
  explicit CacheMemory(UniqueFd fd) : fd_(std::move(fd)) {}

  const UniqueFd fd_;
  std::atomic<uint64_t> end_{0};
};

}  // namespace millrace
