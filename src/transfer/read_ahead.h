#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/functional/function_ref.h"
#include "base/buffer.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "store/object_store.h"
#include "store/pieces.h"

namespace millrace {

/// Reads ranges of objects in parallel, ahead of who needs them, and hands them out in the order in which they were
/// asked for. This is how whole data sets are scanned (building an index, packing), where first-byte latency must
/// not be paid for each object.
///
/// Bounds: 256 requests, and the smaller of 16 pieces (128 MiB of S3, 32 MiB of files) and half the budget in bytes; a
/// larger single range is read alone. All bytes are reserved in the budget. Not thread-safe; the store must outlive it.
/// The destructor cancels what is in flight.
class ReadAhead {
 public:
  struct Request {
    std::string key;  // of the store
    ByteRange range;  // an empty one costs no request
    std::string if_match;
    std::vector<SpanChecksum> checksums;
    bool whole = false;  // as in GetOptions
    bool part = false;   // likewise
  };
  /// The next range to read, nullopt at the end. Called on the thread that calls Next().
  using Source = std::function<absl::StatusOr<std::optional<Request>>()>;

  struct Result {
    Buffer bytes;
    Reservation memory;
  };

  ReadAhead(ObjectStore& store, MemoryBudget& memory, Source source, std::stop_token stop = {});
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// Waits for the next range; Cancelled soon after `stop` is requested; nullopt after the last. Let go of the result
  /// before, or the budget may refuse the next one: ResourceExhausted, with the figure that would do. After an error
  /// only destruction is allowed.
  absl::StatusOr<std::optional<Result>> Next();

  /// The largest range that scans should ask for: several fit into the bounds above. As much as makes the cost of a
  /// request small (8 MiB of S3, 2 MiB of files), and no more, since what is small stays in the caches of the CPU.
  static uint64_t PieceBytes(const ObjectStore& store, const MemoryBudget& memory);

 private:
  struct Slot {
    Result result;
    bool done = false;
    absl::Status status;
  };

  absl::Status Fill();
  void Start(Request request, Reservation memory);

  ObjectStore& store_;
  MemoryBudget& memory_;
  const Source source_;
  const uint64_t window_bytes_;
  std::optional<Request> refused_;  // waits for room
  bool exhausted_ = false;
  uint64_t bytes_ahead_ = 0;
  std::stop_source stop_;  // of the reads: requested by the owner's token, and at the end
  const std::stop_token owners_stop_;
  std::stop_callback<std::function<void()>> on_stop_;

  std::mutex mutex_;  // guards what callbacks touch: done and status of the slots
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Slot>> slots_;
};

/// The request for one of the pieces of `object`, in the version that its ETag names.
ReadAhead::Request PieceRequest(const ObjectInfo& object, const Pieces& pieces, size_t index);

/// Reads all pieces of `object`, ahead, and calls `each` with them, one after the other. Ends with the first error, its
/// own or that of `each`.
absl::Status ReadPieces(ObjectStore& store, MemoryBudget& memory, const ObjectInfo& object, const Pieces& pieces,
                        const std::stop_token& stop, absl::FunctionRef<absl::Status(size_t index, ByteSpan)> each);

}  // namespace millrace
