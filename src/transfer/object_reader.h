#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/buffer.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "store/calls_in_flight.h"
#include "store/object_store.h"

namespace millrace {

/// Reads objects, or ranges of them, by many requests at a time, and hands out their bytes in the order of the
/// requests. Neither the latency of an object nor that of a large object's pieces is thereby paid one by one.
///
///   ObjectReader reader(store, memory, source);  // `source` returns one request after the other, then nullopt
///   for (;;) {
///     ASSIGN_OR_RETURN(const std::optional<ObjectReader::Piece> piece, reader.Next());
///     if (!piece) break;
///     Use(piece->bytes);  // valid until the next call of Next
///   }
///
/// Requests larger than PieceBytes() are read in pieces, along the parts in which the store keeps the object; the facts
/// that this needs are requested ahead. All bytes are verified as well as can be. The checksums of the request serve
/// for that. A whole object that comes without any is checked against the one that the store keeps (whole_check.h).
///
/// Bounds: 256 requests, and the smaller of 16 pieces (128 MiB of S3, 32 MiB of files) and half the budget in bytes; a
/// larger single piece is read alone. All bytes are reserved in the budget, except those in memory of the caller. The
/// memory of a piece is kept for one to come, until another needs the budget. Not thread-safe; blocking; the store and
/// the budget must outlive it. The destructor cancels requests in flight.
class ObjectReader {
 public:
  struct Request {
    ObjectInfo object;                         // key, size and ETag, as listed; without ETag any version is read
    ByteRange range;                           // of the object; an empty one costs no request
    std::vector<SpanChecksum> checksums = {};  // of spans within the range, in ascending order, without overlaps
    bool in_one = false;                       // all bytes come as one piece, however many they are
    MutableByteSpan into = {};                 // if not empty: memory for the range, where it arrives as one piece
    /// This is asked if the pieces of an object are, together, not what the store's checksum says. True: the consumer
    /// can take back what it has got, and all pieces come once more, from the first. Null or false: DataLoss.
    std::function<bool()> begin_again = {};
  };
  /// Returns a request for all of an object.
  static Request All(ObjectInfo object);

  /// Returns the next range to read, nullopt at the end. It is called on the thread that calls Next().
  using Source = std::function<absl::StatusOr<std::optional<Request>>()>;

  static constexpr uint64_t kMaxPieces = 16;

  /// `max_pieces` is the bound above, or less: each piece in flight takes memory that is touched for the first time.
  ObjectReader(ObjectStore& store, MemoryBudget& memory, Source source, std::stop_token stop = {},
               uint64_t max_pieces = kMaxPieces);
  ~ObjectReader();
  ObjectReader(const ObjectReader&) = delete;
  ObjectReader& operator=(const ObjectReader&) = delete;

  struct Piece {
    uint64_t offset = 0;   // of the object
    ByteSpan bytes;        // valid until the next call of Next
    bool first = false;    // of its request; also if that begins again
    bool last = false;     // all bytes of the request have come and were verified
    bool checked = false;  // the store's checksum of the whole is compared before the last piece is handed out
  };
  /// Waits for the next piece; an empty range is one without bytes. nullopt after the last. Errors: those of the store
  /// and of the source; DataLoss for bytes that are not those of a checksum; ResourceExhausted, with the figure that
  /// would do, if the budget refuses even the first piece; Cancelled soon after `stop` is requested. After an error
  /// only destruction is allowed.
  absl::StatusOr<std::optional<Piece>> Next();

  /// The caller wants nothing more of the request whose piece came last.
  void SkipRest();

  /// Returns the largest range that is read by one request: several fit into the bounds above. It is large
  /// enough to make the cost of a request small (8 MiB of S3, 2 MiB of files). It is not larger, since small pieces
  /// stay in the caches of the CPU.
  static uint64_t PieceBytes(const ObjectStore& store, const MemoryBudget& memory);

 private:
  struct Asked;
  struct Unit;
  struct Space {
    Reservation memory;
    Buffer buffer;
  };

  ObjectReader(ObjectStore& store, MemoryBudget& memory, std::shared_ptr<Asked> again, std::stop_token stop);
  absl::Status Fill();
  absl::Status AskSource();
  absl::StatusOr<bool> StartNext(const std::shared_ptr<Asked>& asked);
  absl::StatusOr<bool> IsKnown(Asked& asked);
  absl::StatusOr<std::unique_ptr<Unit>> MakeUnit(const std::shared_ptr<Asked>& asked, ByteRange range);
  bool TakeSpace(uint64_t bytes, Space& space);
  void EndCurrent();
  void Get(Unit& unit, ByteRange range);
  absl::Status WaitForFront();
  absl::Status CheckSpans(Asked& asked, const Unit& unit) const;
  absl::StatusOr<bool> MustBeginAgain(Asked& asked, const Unit& unit) const;
  absl::StatusOr<std::optional<Piece>> BeginAgain(std::shared_ptr<Asked> asked);

  ObjectStore& store_;
  MemoryBudget& memory_;
  const Source source_;
  const uint64_t piece_bytes_;
  const uint64_t window_bytes_;
  std::deque<std::shared_ptr<Asked>> coming_;  // not asked for to their end
  bool exhausted_ = false;
  uint64_t bytes_ahead_ = 0;
  std::unique_ptr<Unit> current_;        // handed out
  Space spare_;                          // of a piece that was handed out, for one to come
  std::unique_ptr<ObjectReader> again_;  // of a request whose pieces come once more
  const std::stop_token owners_stop_;
  std::deque<std::unique_ptr<Unit>> units_;
  CallsInFlight calls_;  // the reads
};

/// Calls `each` with the pieces of one request, one after the other. Ends with the first error, its own or that of
/// `each`.
absl::Status ReadPieces(ObjectStore& store, MemoryBudget& memory, ObjectReader::Request request,
                        const std::stop_token& stop, absl::FunctionRef<absl::Status(const ObjectReader::Piece&)> each,
                        uint64_t max_pieces = ObjectReader::kMaxPieces);

}  // namespace millrace
