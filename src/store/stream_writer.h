#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/memory_budget.h"
#include "store/calls_in_flight.h"
#include "store/object_store.h"

namespace millrace {

/// Returns the bytes of part `number` (from 1) of an object whose length is not known beforehand. If the store limits
/// the pieces: 8 MiB, doubled every 1,000 parts up to 1 GiB, so that the 10,000 parts of S3 hold 3.9 TiB. Else 64 KiB,
/// doubled every 256 parts up to 1 MiB.
uint64_t PartSize(int number, PieceLimits limits);

/// Returns how many parts of that size are held at a time: one is being filled, the others are written.
int PartsHeld(uint64_t part_size);

/// Gathers what is appended in parts, several of which are written at a time: one part by a Put, more by a PieceWriter.
/// Cancels what is in flight when it is destroyed.
class StreamWriter final : public ObjectWriter {
 public:
  /// Opens an object of any length. Holds at most five parts of up to 8 MiB, or three of a larger size (on S3, from 8
  /// GiB on).
  static absl::StatusOr<std::unique_ptr<ObjectWriter>> Open(ObjectStore& store, std::string key, PutOptions options);
  /// Opens one of just `bytes` > 0 bytes: Internal if there come more, or fewer before Commit. Holds up to half of the
  /// budget, which outlives it, in at most eight parts; Append returns ResourceExhausted if there is no room for one.
  static absl::StatusOr<std::unique_ptr<ObjectWriter>> Open(ObjectStore& store, std::string key, PutOptions options,
                                                            uint64_t bytes, MemoryBudget& memory);

  absl::Status Append(ByteSpan bytes) override;
  absl::StatusOr<ObjectInfo> Commit() override;

 private:
  struct Part {
    Buffer bytes;
    Reservation memory;
  };
  /// Exists only if the length of the object is known.
  struct Known {
    Pieces pieces;
    MemoryBudget& memory;
  };

  StreamWriter(ObjectStore& store, std::string key, PutOptions options, std::optional<Known> known);

  absl::Status BeginPart();
  absl::Status TakePart(uint64_t size, size_t held);
  void SendPart();

  ObjectStore& store_;
  const std::string key_;
  const std::optional<Known> known_;
  PutOptions options_;

  Part part_;  // being filled
  size_t filled_ = 0;
  uint64_t written_ = 0;
  uint64_t sent_ = 0;
  size_t parts_ = 0;  // sent

  std::vector<Part> spare_;
  std::unique_ptr<PieceWriter> writer_;
  CallsInFlight calls_;  // of the parts
};

}  // namespace millrace
