#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace millrace {

/// Gives the place of a stream's rows in a batch of the StepBoard: a call receives them there, from the socket.
/// Thread-safe except for the rows.
class RowsPlace {
 public:
  /// Describes the rows of an array, in their order.
  struct Array {
    uint64_t bytes = 0;                 // of all rows
    std::vector<MutableByteSpan> rows;  // empty: they are so small that receiving them elsewhere and copying is cheaper
  };

  /// `slot` keeps the memory.
  RowsPlace(std::shared_ptr<void> slot, std::vector<Array> arrays)
      : slot_(std::move(slot)), arrays_(std::move(arrays)) {}

  const std::vector<Array>& arrays() const { return arrays_; }

  /// Nothing is received there any more. Also said when the last pointer that the board has given away goes.
  void EndWriting() {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    ended_.notify_all();
  }
  void AwaitEnd() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return !writing_; });
  }

 private:
  const std::shared_ptr<void> slot_;
  const std::vector<Array> arrays_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool writing_ = true;
};

}  // namespace millrace
