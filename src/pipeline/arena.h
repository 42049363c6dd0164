#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace millrace {

/// A fixed region of memory that is handed out in runs of units, so that what was fetched never takes more than its
/// share of the budget, however sizes mix: a general allocator may keep freed pages. Memory is touched only as far as
/// it is used. Thread-safe.
class Arena {
 public:
  /// `unit` is a power of two >= 64; `bytes` is rounded down to whole units. Throws std::bad_alloc when the system
  /// refuses.
  Arena(uint64_t bytes, uint64_t unit);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// nullptr when no free run is long enough. size > 0.
  std::byte* Allocate(uint64_t size);
  /// `size` as it was asked for.
  void Free(std::byte* data, uint64_t size);

  uint64_t capacity() const { return units_ * unit_; }
  uint64_t used() const;

  /// A unit that wastes about 5 % of samples of this size.
  static uint64_t UnitFor(double mean_bytes);

 private:
  uint64_t FindRun(uint64_t from, uint64_t to, uint64_t count) const;
  void Mark(uint64_t first, uint64_t count, bool used);

  const uint64_t unit_;
  const uint64_t units_;
  std::byte* region_ = nullptr;
  mutable std::mutex mutex_;
  std::vector<uint64_t> bits_;  // 1 = used
  uint64_t used_units_ = 0;
  uint64_t next_ = 0;  // where a search begins: below it nothing was freed since the last one
};

}  // namespace millrace
