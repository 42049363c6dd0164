#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace millrace {

/// A fixed region of memory that is handed out in runs of units. Fetched bytes therefore never take more than their
/// share of the budget, however sizes mix; a general allocator may keep freed pages. Memory is touched only as far as
/// it is used. Not thread-safe.
class Arena {
 public:
  /// Takes a `unit` that is a power of two >= 64; `bytes` is rounded down to whole units. Throws std::bad_alloc if the
  /// system refuses.
  Arena(uint64_t bytes, uint64_t unit);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Returns nullptr if no free run is long enough. size > 0.
  std::byte* Allocate(uint64_t size);
  /// Frees memory of Allocate; `size` is the one that was asked for.
  void Free(std::byte* data, uint64_t size);

  /// Limits the bytes that are handed out from now on: to `bytes` and to capacity(), those at the lowest addresses.
  /// Free bytes beyond the limit are given back to the system, as are bytes that are freed there later.
  void SetLimit(uint64_t bytes);

  uint64_t capacity() const { return units_ * unit_; }
  uint64_t limit() const { return limit_units_ * unit_; }
  uint64_t used() const { return used_units_ * unit_; }
  /// Returns the bytes that the system has given for it: those up to the last one that was handed out.
  uint64_t touched() const { return touched_units_ * unit_; }

  /// Returns a unit that wastes about 5 % of samples of this size.
  static uint64_t UnitFor(double mean_bytes);

 private:
  uint64_t FindRun(uint64_t from, uint64_t to, uint64_t count) const;
  void Mark(uint64_t first, uint64_t count, bool used);
  void GiveBack(uint64_t first, uint64_t end);

  const uint64_t unit_;
  const uint64_t units_;
  uint64_t limit_units_ = 0;
  std::byte* region_ = nullptr;
  std::vector<uint64_t> bits_;  // 1 = used
  uint64_t used_units_ = 0;
  uint64_t touched_units_ = 0;
  uint64_t next_ = 0;  // place where a search begins: below it nothing was freed since the last one
};

/// Represents bytes of an arena, which return there when it dies. Move-only.
class ArenaBlock {
 public:
  ArenaBlock() = default;
  /// Empty if there is no room. size > 0.
  ArenaBlock(Arena* arena, uint64_t size) : data_(arena->Allocate(size)) {
    if (data_ == nullptr) return;
    arena_ = arena;
    size_ = size;
  }
  ~ArenaBlock() {
    if (arena_ != nullptr) arena_->Free(data_, size_);
  }
  ArenaBlock(ArenaBlock&& other) noexcept
      : arena_(std::exchange(other.arena_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  ArenaBlock& operator=(ArenaBlock&& other) noexcept {
    std::swap(arena_, other.arena_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  explicit operator bool() const { return arena_ != nullptr; }
  MutableByteSpan span() const { return {data_, size_}; }

 private:
  Arena* arena_ = nullptr;
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace millrace
