#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <stop_token>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "dataset/dataset.h"
#include "dataset/read_ahead.h"
#include "net/runtime.h"

namespace millrace {

/// The bytes of all samples of a data set, in index order, read ahead in parallel: small samples that lie together
/// in one request, large ones in pieces. Every sample is verified against its checksum in the index. Blocking; not
/// thread-safe; the data set must outlive it.
class SampleReader {
 public:
  /// Gives Cancelled soon after a stop is requested.
  SampleReader(Runtime& runtime, const Dataset& dataset, std::stop_token stop = {});

  /// A sample, or a part of a large one. Valid until the next call.
  struct Part {
    const IndexedSample* sample = nullptr;
    uint64_t offset = 0;  // of the bytes, within the sample's span
    ByteSpan bytes;
    bool last = false;  // with this the sample is complete (and verified)
  };

  /// nullopt after the last sample.
  absl::StatusOr<std::optional<Part>> Next();

 private:
  // What one request brings: the whole of some samples, or a part of one.
  struct Piece {
    uint64_t first = 0;
    uint64_t count = 0;
    uint64_t begin = 0;  // of the object
    bool whole = true;
    uint64_t part_offset = 0;
  };

  absl::StatusOr<std::optional<ReadAhead::Request>> NextRequest();
  absl::Status Gather(Piece* piece, ReadAhead::Request* request);
  absl::Status SplitLarge(Piece* piece, ReadAhead::Request* request);
  absl::StatusOr<Part> PartOfLarge();

  const Dataset& dataset_;
  const uint64_t piece_bytes_;

  // The side that asks.
  uint64_t next_ = 0;          // sample to ask for
  bool looked_up_ = false;     // asked_ holds it
  uint64_t large_offset_ = 0;  // of a large one, what has been asked for
  IndexedSample asked_;
  IndexedObject object_;  // of asked_
  std::optional<uint32_t> object_ordinal_;

  // The side that hands out.
  std::deque<Piece> pieces_;
  std::optional<ReadAhead::Result> result_;  // of pieces_.front()
  uint64_t taken_ = 0;                       // samples of it that were handed out
  IndexedSample sample_;
  uint32_t large_crc_ = 0;

  ReadAhead reads_;  // last: its callbacks end before the rest goes
};

}  // namespace millrace
