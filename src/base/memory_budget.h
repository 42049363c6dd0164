#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace millrace {

class MemoryBudget;

/// Holds bytes taken from a budget; the destructor gives them back. Move-only.
///
///   const Reservation room = budget.TryReserve(bytes);
///   if (!room) return absl::ResourceExhaustedError("no memory is left");
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Reservation();

  explicit operator bool() const { return budget_ != nullptr; }
  uint64_t bytes() const { return bytes_; }

 private:
  friend class MemoryBudget;
  Reservation(MemoryBudget* budget, uint64_t bytes) : budget_(budget), bytes_(bytes) {}

  MemoryBudget* budget_ = nullptr;
  uint64_t bytes_ = 0;
};

/// Bounds a process's buffers. Reservations are granted or refused at once: a caller that is refused waits until its
/// own work has finished. Thread-safe; must outlive its reservations.
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t limit_bytes) : limit_(limit_bytes) {}

  /// Returns an empty reservation if fewer than `bytes` are left.
  Reservation TryReserve(uint64_t bytes);

  /// Adds `bytes` to a reservation, which is of this budget or empty. Returns false and changes nothing if fewer are
  /// left.
  bool TryExtend(Reservation* reservation, uint64_t bytes);

  uint64_t limit() const { return limit_; }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  friend class Reservation;
  bool TryTake(uint64_t bytes);

  const uint64_t limit_;
  std::atomic<uint64_t> used_{0};
};

}  // namespace millrace
