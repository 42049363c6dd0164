#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/buffer.h"
#include "base/memory_budget.h"

namespace millrace {

/// Slots of one size for batches, made on demand up to a bound and used again. A slot is out for as long as anyone
/// holds a copy of its pointer, also after the ring has died: the consumer's arrays keep their memory. Thread-safe.
class BatchRing {
 public:
  /// `budget` (may be empty) is given back when the ring and all slots are gone. `returned` is called, on any thread
  /// and without locks, whenever a slot comes back while the ring lives.
  BatchRing(uint64_t slot_bytes, uint64_t max_slots, Reservation budget, std::function<void()> returned);
  ~BatchRing();

  /// A slot of slot_bytes, or null when max_slots are out. Throws std::bad_alloc when the system refuses.
  std::shared_ptr<Buffer> TryAcquire();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace millrace
