#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "base/memory_budget.h"

namespace millrace {

/// Represents the memory shared by those loaders of a process that have no budget of their own. It is divided among the
/// ones that read: each has an equal share, except for memory that others do not need. For example, two loaders share 8
/// GiB: each has 4 GiB, or 7 GiB if the other one needs only 1 GiB. If a loader has read ahead before another one
/// began, it keeps these bytes until its batches are taken. Until then the other one has the rest, and kLeastBytes in
/// any case. Thread-safe; its members may outlive it.
class MemoryShares {
 public:
  static constexpr uint64_t kLeastBytes = uint64_t{32} << 20;

  /// Takes `bytes`, or as much as the budget has, which outlives the members.
  MemoryShares(MemoryBudget& budget, uint64_t bytes);

  uint64_t bytes() const;
  /// The equal share if one more loader reads.
  uint64_t NextShare() const;

 private:
  struct State;

 public:
  /// Represents the membership of a loader that reads, for its life.
  class Member {
   public:
    ~Member();
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    /// Returns the bytes that it may have now, if it has `used`.
    uint64_t Grant(uint64_t used);
    /// Returns the number of loaders that share now, with this one.
    uint64_t members() const;

   private:
    friend class MemoryShares;
    friend struct State;
    Member(std::shared_ptr<State> state, uint64_t need) : state_(std::move(state)), need_(need) {}

    const std::shared_ptr<State> state_;
    const uint64_t need_;
    uint64_t used_ = 0;
  };

  /// Adds a loader that never has more than `need`, of which `apart` bytes are reserved elsewhere. Null if the
  /// process's budget has no room for it.
  std::unique_ptr<Member> Join(uint64_t need, uint64_t apart);

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace millrace
