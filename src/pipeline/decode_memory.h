#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/memory_budget.h"
#include "decode/image.h"

namespace millrace {

/// The memory that all decoders of a loader take at once for images that are not decoded row by row. It comes from the
/// process's budget: at most `limit` bytes, or one image that takes more. A decoder that asks for more waits until the
/// others have done; they wait for nobody. ResourceExhausted if the process has not enough left for one image alone.
/// Thread-safe; outlives what is taken.
class DecodeMemory final : public ImageMemory {
 public:
  DecodeMemory(MemoryBudget& process, uint64_t limit) : process_(process), limit_(limit) {}

  absl::Status Take(uint64_t bytes) override;
  void Return(uint64_t bytes) override;

 private:
  bool Grant(uint64_t bytes);

  MemoryBudget& process_;
  const uint64_t limit_;
  std::mutex mutex_;
  std::condition_variable returned_;
  uint64_t used_ = 0;
  Reservation reserved_;  // at least used_; given back when nothing is used
};

}  // namespace millrace
