#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/memory_budget.h"
#include "mount/patience.h"
#include "mount/written_content.h"
#include "store/object_store.h"

namespace millrace {

/// Stores a file as an object that appears whole or not at all. It is a Put if it fits into one part, else a
/// PieceWriter with several parts in flight. There are two ways to it. Write takes the bytes from the beginning to the
/// end while the program writes; Patch says which of them have changed since, and Finish fetches the missing ones. Or
/// FinishPieces makes the object of pieces that are known; the store may copy some of them.
///
/// An error ends it: whatever is written after a write that failed, nothing of the file appears. Only a wait that was
/// interrupted (Cancelled) has no consequence. Thread-safe, but Patch, and Finish with a Load, must not meet a Write.
class FileUpload {
 public:
  /// Gives about so many bytes back to the budget, of what can be had again. Returns how many, 0 if there is nothing.
  /// It must not wait for anything.
  using MakeRoom = std::function<uint64_t(uint64_t bytes)>;
  /// Reads bytes of the file, as it is now.
  using Load = std::function<absl::Status(uint64_t offset, MutableByteSpan into)>;
  /// Holds bytes of a part for the staging file.
  struct Kept {
    uint64_t offset = 0;
    ByteSpan bytes;
    /// Returns true while the program waits, or soon will, for memory that only `done` gives back: the store has the
    /// part.
    std::function<bool()> is_awaited;
    /// The receiver calls it, in another thread, when the bytes are not needed any more.
    std::function<void()> done;
  };
  /// Gets all bytes in the order of the file.
  using Keep = std::function<void(Kept kept)>;

  /// The store and the budget, which holds the parts, must outlive it. `make_room` is asked if the budget has no room
  /// for a part. PutOptions::stop is its own.
  FileUpload(ObjectStore& store, MemoryBudget& memory, std::string key, PutOptions options,
             MakeRoom make_room = nullptr);
  /// Cancels what is in flight, and waits for that.
  ~FileUpload();
  FileUpload(const FileUpload&) = delete;
  FileUpload& operator=(const FileUpload&) = delete;

  /// Returns how many bytes were taken: all, unless it was interrupted. EINVAL if `offset` is not where the bytes
  /// before ended, EIO after Finish, ENOMEM if the budget has no room for a part. Errors of the store come as soon as
  /// they are known. `keep` gets them from the memory of their part, in steps of kKeptBytes and with its end.
  absl::StatusOr<size_t> Write(uint64_t offset, ByteSpan bytes, const Patience& patience, const Keep& keep = nullptr);
  /// Returns the bytes that were written last, and have not got to `keep` yet. The caller reads them without a lock, so
  /// no Write may be in progress.
  ByteSpan Unkept() const;
  /// The caller has kept these itself.
  void SetKept();

  /// Bytes that were taken before are others now. `range` ends at written() or before.
  void Patch(uint64_t offset, ByteSpan bytes);
  /// Returns the part that was sent and holds the byte at `offset`, or an empty range if none was.
  ByteRange SentPart(uint64_t offset) const;
  /// Returns the parts that have arrived in the store, and need not be read again unless they are patched. The first
  /// one and the latest are left out: programs change the beginning and the end of a file.
  std::vector<ByteRange> ArrivedParts() const;

  /// Makes the object visible, and returns the same answer each time that it is called. If it was interrupted, another
  /// call waits again. Each answer of the store extends the deadline.
  absl::StatusOr<ObjectInfo> Finish(const Patience& patience);
  /// Does the same for a file of `bytes`, of which all that Write has not taken is loaded.
  absl::StatusOr<ObjectInfo> Finish(uint64_t bytes, const Load& load, const Patience& patience);
  /// Does the same with pieces that are sent, if Write was not called.
  absl::StatusOr<ObjectInfo> FinishPieces(const std::vector<WrittenContent::Piece>& pieces, const Load& load,
                                          const Patience& patience);
  /// Returns true if the store copies pieces. Call it before Write.
  bool CopiesPieces();
  /// Does the same as FinishPieces, but the store copies some of the pieces from `base`. Returns Unimplemented if the
  /// server turns out not to copy. If it is interrupted before finishing(), the upload is of no use any more.
  absl::StatusOr<ObjectInfo> FinishCopied(const std::vector<WrittenContent::Piece>& pieces, const ObjectInfo& base,
                                          const Load& load, const Patience& patience);

  /// Sets the time of the last change of a file. (Objects of S3 have only that of their upload.)
  void set_modified_ms(int64_t modified_ms);

  uint64_t written() const;  // bytes that Write has taken
  uint64_t sent() const;     // of these, so many were sent, or are in flight
  bool finishing() const;

 private:
  struct Part;
  struct SentPiece {
    ByteRange range;
    bool arrived = false;
    bool stale = false;  // its bytes have changed since
  };
  using Lock = std::unique_lock<std::mutex>;
  enum class Phase { kOpen, kDraining, kCommitting };

  absl::Status CheckOpen() const;
  absl::StatusOr<std::shared_ptr<Part>> TakeRoom(Lock& lock, const Patience& patience, uint64_t bytes, uint64_t room);
  absl::Status NextPart(Lock& lock, const Patience& patience);
  bool Reserve(Part& part, uint64_t bytes);
  absl::Status Grow();
  absl::Status OpenWriter();
  absl::Status SendFullPart(Lock& lock);
  void SendPart(Lock& lock);
  void PassToKeep(const Keep& keep);
  bool IsAwaited(uint64_t part_bytes) const;
  void Recycle(const std::shared_ptr<Part>& part);
  void Send(Lock& lock, size_t index, const std::shared_ptr<Part>& part);
  void OnSent(size_t index, absl::Status status);
  bool KeepsSpare(const Part& part) const;
  absl::Status LoadRest(Lock& lock, uint64_t bytes, const Load& load, const Patience& patience);
  absl::Status SendLoaded(Lock& lock, size_t index, const Load& load, const Patience& patience);
  absl::Status SendStale(Lock& lock, const Load& load, const Patience& patience);
  absl::Status CopyPiece(Lock& lock, size_t index, const ObjectInfo& base, const Patience& patience);
  void BeginFinish(Lock& lock);
  absl::StatusOr<ObjectInfo> End(Lock& lock, const Patience& patience);
  absl::Status Fail(absl::Status status);
  template <typename Done>
  absl::Status WaitWhileAnswered(Lock& lock, const Patience& patience, Done done);

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
  std::shared_ptr<Part>
      spare_;  // memory of one that has arrived: to get as much of the system costs more than to fill it
  std::vector<SentPiece> sent_;
  int in_flight_ = 0;      // parts, and the call that ends it
  int keeping_ = 0;        // calls of a Keep that are not done
  int lingering_ = 0;      // parts that have arrived, and a Keep still needs
  uint64_t answered_ = 0;  // calls
  uint64_t written_ = 0;   // bytes that were taken
  uint64_t kept_ = 0;      // of these, so many are kept, or a Keep has got them
  std::unique_ptr<PieceWriter> writer_;
  std::optional<absl::StatusOr<ObjectInfo>> result_;
};

}  // namespace millrace
