#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "base/buffer.h"
#include "base/memory_budget.h"
#include "mount/patience.h"
#include "store/object_store.h"

namespace millrace {

/// A file that a program writes from its beginning to its end, as an object that appears whole or not at all: by a Put
/// if it fits into one part, else by a PieceWriter, several of whose parts are in flight while the program goes on.
///
/// An error ends it: whatever is written after a write that failed, nothing of the file appears. Only a wait that was
/// interrupted (Cancelled) has no consequence. Thread-safe.
class FileUpload {
 public:
  /// Gives about so many bytes back to the budget, of what can be had again. Returns how many, 0 if there is nothing.
  /// It must not wait for anything.
  using MakeRoom = std::function<uint64_t(uint64_t bytes)>;

  /// The store and the budget, which holds the parts, must outlive it. `make_room` is asked if the budget has no room
  /// for a part. PutOptions::stop is its own.
  FileUpload(ObjectStore& store, MemoryBudget& memory, std::string key, PutOptions options,
             MakeRoom make_room = nullptr);
  /// Cancels what is in flight, and waits for that.
  ~FileUpload();
  FileUpload(const FileUpload&) = delete;
  FileUpload& operator=(const FileUpload&) = delete;

  /// How many bytes were taken: all, unless it was interrupted. EINVAL if `offset` is not where the bytes before ended,
  /// EIO after Finish, ENOMEM if the budget has no room for a part, and the errors of the store, as soon as they are
  /// known.
  absl::StatusOr<size_t> Write(uint64_t offset, ByteSpan bytes, const Patience& patience);

  /// Makes the object visible; the same answer each time that it is called. If it was interrupted, another call waits
  /// again.
  absl::StatusOr<ObjectInfo> Finish(const Patience& patience);

  /// What a file tells as the time of its last change. (Objects of S3 have only that of their upload.)
  void set_modified_ms(int64_t modified_ms);

  uint64_t size() const;
  bool finishing() const;

 private:
  struct Part;
  using Lock = std::unique_lock<std::mutex>;
  enum class Phase { kOpen, kDraining, kCommitting };

  absl::Status CheckOpen() const;
  absl::Status TakeRoom(Lock& lock, const Patience& patience);
  bool Reserve(Part& part, uint64_t bytes);
  absl::Status Grow();
  void SendPart(Lock& lock);
  void BeginFinish(Lock& lock);
  absl::Status Fail(absl::Status status);

  ObjectStore& store_;
  MemoryBudget& memory_;
  const std::string key_;
  const std::string uri_;
  const MakeRoom make_room_;
  std::stop_source stop_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  PutOptions options_;
  Phase phase_ = Phase::kOpen;
  absl::Status status_;  // the first error
  std::shared_ptr<Part> part_;
  size_t sent_ = 0;       // parts
  int in_flight_ = 0;     // parts, and the call that ends it
  uint64_t written_ = 0;  // bytes that were taken
  std::unique_ptr<PieceWriter> writer_;
  std::optional<absl::StatusOr<ObjectInfo>> result_;
};

}  // namespace millrace
