#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "base/memory_budget.h"

namespace millrace {

/// Represents slots of one size for batches, made on demand up to a bound and used again. A slot is out as long as a
/// copy of its pointer is held, also after the ring has died: the consumer's arrays keep their memory. No two slots
/// share a page, so that each can be pinned by itself; while the ring lives, no slot is freed. Thread-safe.
class BatchRing {
 public:
  /// Takes a `budget`, which may be empty and is given back when the ring and all slots are gone. `returned` is called,
  /// on any thread and without locks, whenever a slot comes back while the ring lives.
  BatchRing(uint64_t slot_bytes, uint64_t max_slots, Reservation budget, std::function<void()> returned);
  ~BatchRing();

  /// Returns a slot of slot_bytes, rounded up to whole pages, or null if max_slots are out. Throws std::bad_alloc if
  /// the system refuses.
  std::shared_ptr<MutableByteSpan> TryAcquire();

  /// The number of slots that exist: those that are out and those that wait to be used again.
  uint64_t made() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace millrace
