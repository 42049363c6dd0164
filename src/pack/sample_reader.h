#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "dataset/dataset.h"
#include "pack/pack_plan.h"
#include "store/pieces.h"
#include "store/whole_check.h"
#include "transfer/read_ahead.h"

namespace millrace {

/// Consecutive positions of an order.
struct Positions {
  uint64_t begin = 0;
  uint64_t end = 0;
};

/// The bytes of the samples at some positions, read ahead in parallel: small samples that lie together in the source
/// and follow one another here in one request, large ones in pieces. Every sample is verified against its checksum in
/// the index. Blocking; not thread-safe; what it is given must outlive it.
class SampleReader {
 public:
  /// Passes over the positions in `skipped`. Memory: half of the budget. Gives Cancelled soon after a stop is
  /// requested.
  SampleReader(const Dataset& dataset, const PackOrder& order, Positions positions, const std::set<uint64_t>& skipped,
               MemoryBudget& memory, std::stop_token stop = {});

  /// A sample, or a part of a large one. Valid until the next call.
  struct Part {
    uint64_t position = 0;
    const IndexedSample* sample = nullptr;
    uint64_t offset = 0;  // of the bytes, within the sample's span
    ByteSpan bytes;
    bool last = false;  // with this the sample is complete (and verified)
  };

  /// nullopt after the last sample.
  absl::StatusOr<std::optional<Part>> Next();

  /// After an error of Next: where the samples lie that it may be about.
  Positions Suspects() const;

 private:
  // What one request brings: the whole of some samples, or a part of one.
  struct Piece {
    uint64_t first = 0;  // position
    uint64_t count = 0;
    uint64_t begin = 0;  // of the object
    bool whole = true;
    // Of a large sample:
    size_t part = 0;
    uint64_t part_offset = 0;
    std::shared_ptr<WholeCheck> check;  // shared by its pieces; null when the index has checksums
  };

  absl::StatusOr<std::optional<ReadAhead::Request>> NextRequest();
  void SkipSkipped();
  absl::Status LookUpAsked();
  absl::Status Gather(Piece* piece, ReadAhead::Request* request);
  absl::Status BeginLarge();
  absl::Status SplitLarge(Piece* piece, ReadAhead::Request* request);
  absl::StatusOr<Part> PartOfLarge();

  const Dataset& dataset_;
  const PackOrder& order_;
  const Positions positions_;
  const std::set<uint64_t>& skipped_;
  const uint64_t piece_bytes_;
  const std::stop_token stop_;

  // The side that asks.
  uint64_t next_;           // position to ask for
  bool looked_up_ = false;  // asked_ holds its sample
  IndexedSample asked_;
  IndexedObject object_;  // of asked_
  std::optional<uint32_t> object_ordinal_;
  std::optional<Pieces> large_;  // asked_ is a large one, which is being asked for
  size_t large_part_ = 0;        // its next piece
  std::shared_ptr<WholeCheck> large_check_;

  // The side that hands out.
  std::deque<Piece> pieces_;
  std::optional<ReadAhead::Result> result_;  // of pieces_.front()
  uint64_t taken_ = 0;                       // samples of it that were handed out
  IndexedSample sample_;
  uint32_t large_crc_ = 0;

  ReadAhead reads_;  // last: its callbacks end before the rest goes
};

}  // namespace millrace
