#include "pipeline/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>

namespace millrace {

namespace {
constexpr uint64_t kNone = UINT64_MAX;
}

Arena::Arena(uint64_t bytes, uint64_t unit) : unit_(unit), units_(bytes / unit) {
  if (units_ == 0) return;
  void* mapped =
      mmap(nullptr, units_ * unit_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  region_ = static_cast<std::byte*>(mapped);
  bits_.resize((units_ + 63) / 64, 0);  // now that the size is known to be a possible one
}

Arena::~Arena() {
  if (region_ != nullptr) munmap(region_, units_ * unit_);
}

uint64_t Arena::UnitFor(double mean_bytes) {
  const auto target = static_cast<uint64_t>(std::clamp(mean_bytes / 8, 64.0, 16384.0));
  return std::bit_floor(target);
}

uint64_t Arena::FindRun(uint64_t from, uint64_t to, uint64_t count) const {
  uint64_t run = 0;
  for (uint64_t i = from; i < to;) {
    const uint64_t word = bits_[i / 64] >> (i % 64);
    const uint64_t in_word = std::min<uint64_t>(64 - i % 64, to - i);
    const uint64_t free = std::min<uint64_t>(std::countr_zero(word), in_word);
    run += free;
    if (run >= count) return i + free - run;
    if (free == in_word) {
      i += in_word;
      continue;
    }
    run = 0;
    i += free + std::min<uint64_t>(std::countr_one(word >> free), in_word - free);
  }
  return kNone;
}

void Arena::Mark(uint64_t first, uint64_t count, bool used) {
  while (count > 0) {
    const uint64_t bit = first % 64;
    const uint64_t n = std::min<uint64_t>(64 - bit, count);
    const uint64_t mask = (n == 64 ? ~uint64_t{0} : ((uint64_t{1} << n) - 1)) << bit;
    if (used) {
      bits_[first / 64] |= mask;
    } else {
      bits_[first / 64] &= ~mask;
    }
    first += n;
    count -= n;
  }
}

std::byte* Arena::Allocate(uint64_t size) {
  const uint64_t count = (size + unit_ - 1) / unit_;
  if (count > units_ - used_units_) return nullptr;
  // From the lowest place where something was freed: low addresses first keeps the touched part small, and what was
  // touched last is still in the CPU's cache.
  uint64_t found = FindRun(next_, units_, count);
  if (found == kNone) found = FindRun(0, std::min(units_, next_ + count), count);
  if (found == kNone) return nullptr;
  Mark(found, count, true);
  used_units_ += count;
  next_ = found + count;
  return region_ + found * unit_;
}

void Arena::Free(std::byte* data, uint64_t size) {
  const uint64_t count = (size + unit_ - 1) / unit_;
  const uint64_t first = static_cast<uint64_t>(data - region_) / unit_;
  Mark(first, count, false);
  used_units_ -= count;
  next_ = std::min(next_, first);
}

}  // namespace millrace
