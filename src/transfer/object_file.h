#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "base/memory_budget.h"
#include "transfer/object_reader.h"

namespace millrace {

/// Reads one version of an object as a file, at any place. A read that continues where the last one ended is read
/// ahead. That is 1 MiB at first, then four times as much each time that is used up, with many requests in flight. Any
/// other read requests just its bytes, so that jumping about in a large object costs no more than what is read.
///
/// Holds what an ObjectReader holds (its bytes are reserved in the budget), and only after a read that continued
/// another one. Not thread-safe; blocking. The store and the budget must outlive it.
class ObjectFile {
 public:
  /// Asks the store for size and ETag. NotFound and the other errors of Head.
  static absl::StatusOr<std::unique_ptr<ObjectFile>> Open(ObjectStore& store, MemoryBudget& memory, std::string key,
                                                          const std::stop_token& stop = {});
  /// Opens an object that was listed.
  ObjectFile(ObjectStore& store, MemoryBudget& memory, ObjectInfo info);

  const ObjectInfo& info() const { return info_; }

  /// Reads from `offset` on until `into` is full or the object ends, and returns how many bytes that were: 0 at the end
  /// and after it. Returns FailedPrecondition if the object was replaced after it was opened, Cancelled soon after a
  /// stop is requested. Returns ResourceExhausted if the budget has no room for a piece, and the errors of the store.
  /// After an error the next read begins afresh.
  absl::StatusOr<size_t> Read(uint64_t offset, MutableByteSpan into, const std::stop_token& stop = {});

  /// Reads the part of such a read that needs no request: the bytes from `offset` on that have been read ahead.
  size_t ReadHeld(uint64_t offset, MutableByteSpan into);

 private:
  absl::Status ReadAlone(uint64_t offset, MutableByteSpan into, const std::stop_token& stop);
  absl::StatusOr<size_t> ReadAhead(uint64_t offset, MutableByteSpan into);
  void BeginAhead(uint64_t offset, uint64_t least);
  void ForgetAhead();

  ObjectStore& store_;
  MemoryBudget& memory_;
  const ObjectInfo info_;
  uint64_t next_ = 0;  // where a read goes on
  // These describe what is read ahead.
  uint64_t ahead_bytes_ = 0;  // of the latest stretch
  std::stop_source stop_ahead_;
  std::unique_ptr<ObjectReader> ahead_;
  uint64_t held_offset_ = 0;
  ByteSpan held_;  // its current piece; the next one begins after it
};

}  // namespace millrace
