#include "checkpoint/staging_memory.h"

#include <algorithm>
#include <utility>

namespace millrace {

namespace {

// Pieces of shards end anywhere: rounded up, one buffer suits many of them.
constexpr uint64_t kRounding = 1 << 20;

}  // namespace

Buffer StagingMemory::Take(uint64_t bytes, uint64_t in_use) {
  const uint64_t wanted = (bytes + kRounding - 1) / kRounding * kRounding;
  {
    std::vector<Buffer> dropped;  // and freed outside the lock, before there is a new one
    const std::lock_guard lock(mutex_);
    auto best = free_.end();
    for (auto buffer = free_.begin(); buffer != free_.end(); ++buffer) {
      const bool suits = buffer->size() >= wanted && buffer->size() <= 2 * wanted;
      if (suits && (best == free_.end() || buffer->size() <= best->size())) best = buffer;
    }
    if (best != free_.end()) {
      Buffer taken = std::move(*best);
      free_.erase(best);
      kept_ -= taken.size();
      return taken;
    }
    DropOldest(most_kept_ - std::min(most_kept_, in_use + wanted), dropped);
  }
  return Buffer(wanted);
}

void StagingMemory::GiveBack(Buffer buffer) {
  if (buffer.size() == 0 || buffer.size() > most_kept_) return;
  std::vector<Buffer> dropped;  // and freed outside the lock
  const std::lock_guard lock(mutex_);
  kept_ += buffer.size();
  free_.push_back(std::move(buffer));
  DropOldest(most_kept_, dropped);
}

void StagingMemory::DropOldest(uint64_t most, std::vector<Buffer>& dropped) {
  size_t oldest = 0;
  for (; kept_ > most; ++oldest) {
    kept_ -= free_[oldest].size();
    dropped.push_back(std::move(free_[oldest]));
  }
  free_.erase(free_.begin(), free_.begin() + static_cast<ptrdiff_t>(oldest));
}

uint64_t StagingMemory::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

}  // namespace millrace
