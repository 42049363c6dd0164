#include "pipeline/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <new>

namespace millrace {

namespace {
constexpr uint64_t kNone = UINT64_MAX;
}  // namespace

Arena::Arena(uint64_t bytes, uint64_t unit) : unit_(unit), units_(bytes / unit), limit_units_(units_) {
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
  if (used_units_ > limit_units_ || count > limit_units_ - used_units_) return nullptr;
  // The search begins at the lowest place that was freed. Low addresses first keep the touched part small, and memory
  // that was touched last is still in the CPU's cache.
  uint64_t found = FindRun(next_, limit_units_, count);
  if (found == kNone) found = FindRun(0, std::min(limit_units_, next_ + count), count);
  if (found == kNone) return nullptr;
  Mark(found, count, true);
  used_units_ += count;
  touched_units_ = std::max(touched_units_, found + count);
  next_ = found + count;
  return region_ + found * unit_;
}

void Arena::Free(std::byte* data, uint64_t size) {
  const uint64_t count = (size + unit_ - 1) / unit_;
  const uint64_t first = static_cast<uint64_t>(data - region_) / unit_;
  Mark(first, count, false);
  used_units_ -= count;
  next_ = std::min(next_, first);
  if (first + count > limit_units_) GiveBack(std::max(first, limit_units_), first + count);
}

void Arena::SetLimit(uint64_t bytes) {
  const uint64_t before = limit_units_;
  limit_units_ = std::min(units_, bytes / unit_);
  next_ = std::min(next_, limit_units_);
  if (limit_units_ >= std::min(before, touched_units_)) return;
  for (uint64_t at = limit_units_; at < touched_units_;) {
    const uint64_t free = FindRun(at, touched_units_, 1);
    if (free == kNone) break;
    uint64_t end = free;
    while (end < touched_units_ && (bits_[end / 64] >> (end % 64) & 1) == 0) ++end;
    at = end;
    GiveBack(free, end);
  }
}

// Gives free units beyond the limit back to the system. Pages that others have a part of stay, until all units behind
// them are free.
void Arena::GiveBack(uint64_t first, uint64_t end) {
  if (end == touched_units_) {
    while (touched_units_ > limit_units_ && FindRun(touched_units_ - 1, touched_units_, 1) != kNone) --touched_units_;
    first = std::min(first, touched_units_);
  }
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(region_ + first * unit_) + page - 1) / page * page;
  const auto last = reinterpret_cast<uintptr_t>(region_ + end * unit_) / page * page;
  if (begin < last) (void)madvise(reinterpret_cast<void*>(begin), last - begin, MADV_DONTNEED);
}

}  // namespace millrace
