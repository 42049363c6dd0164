#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "store/object_store.h"

namespace millrace {

/// Writes one object of known size front to back: its bytes are gathered in pieces, several of which are on their way
/// at a time. Nothing is visible before Commit succeeds. Memory: up to half of the budget that it is given, in at most
/// eight pieces. Blocking; not thread-safe; after an error only destruction is allowed.
class PieceStream final : public ObjectWriter {
 public:
  /// Of the options `stop` is about all calls. `bytes` > 0; the store and the budget must outlive it.
  static absl::StatusOr<std::unique_ptr<PieceStream>> Open(ObjectStore& store, std::string key, uint64_t bytes,
                                                           MemoryBudget& memory, PutOptions options);
  /// Cancels what is in flight, and waits for it.
  ~PieceStream() override;
  PieceStream(const PieceStream&) = delete;
  PieceStream& operator=(const PieceStream&) = delete;

  /// The next bytes. ResourceExhausted when the budget has no room for one piece.
  absl::Status Append(ByteSpan bytes) override;
  /// Internal unless just as many bytes came as were announced.
  absl::StatusOr<ObjectInfo> Commit() override;

 private:
  struct Slot {
    Slot(size_t bytes, Reservation reserved) : buffer(bytes), memory(std::move(reserved)) {}
    Buffer buffer;
    Reservation memory;
    bool busy = false;  // guarded by mutex_: its piece is on its way
  };

  PieceStream(ObjectStore& store, std::string key, Pieces pieces, MemoryBudget& memory, PutOptions options);
  absl::Status BeginPiece();
  absl::Status EndPiece();
  absl::Status WaitForAll();
  bool Whole() const { return pieces_.count() == 1; }

  ObjectStore& store_;
  const std::string key_;
  const Pieces pieces_;
  MemoryBudget& memory_;
  const size_t most_slots_;
  PutOptions options_;  // with the token of stop_
  std::stop_source stop_;
  const std::stop_token owners_stop_;
  std::stop_callback<std::function<void()>> on_stop_;

  std::unique_ptr<PieceWriter> writer_;  // of more than one piece
  size_t piece_ = 0;                     // that is being filled, or comes next
  Slot* filling_ = nullptr;
  size_t filled_ = 0;  // bytes of it

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Slot>> slots_;
  absl::Status status_;  // the first error of a piece
};

}  // namespace millrace
